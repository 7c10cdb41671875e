"""Keys -> arrays -> values. numpy and scipy only: no paths, no frames, no printing.

Theory, once. A group's rollouts, merged on equal anchors, are a finite process: from anchor s the
group took action a with frequency μ(a|s) = N(s,a)/N(s) and came to x with frequency
P(x|s,a) = N(s,a,x)/N(s,a), where x is an anchor or one of the absorbing boundaries z⁺ (success,
value 1) and z⁻ (failure, value 0). Its Bellman operator

    (𝓑V)(s,a) = β Σₓ P(x|s,a) V(x)        (𝓣V)(s) = Σₐ μ(a|s) (𝓑V)(s,a) = (βMV + b)(s)

with M[s,s'] = N(s,·,s')/N(s) and b[s] = β N(s,·,z⁺)/N(s) is a β-contraction; its fixed point
V = (I − βM)⁻¹b is the closure, Q = 𝓑V, and K applications of 𝓣 to the visit-local mean V₀ are the
finite depths between. Source: CRBC (arXiv 2609.35082), section 4.

All arrays hold many groups at once, block-diagonally; nothing loops over groups, visits or rows.
Every sum runs over one state's or one pair's visits in canonical order, so that a group's numbers
do not depend on its neighbours.
"""
