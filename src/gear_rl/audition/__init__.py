"""`gear audition`: what a task, a model and a hint have to offer to each credit method, before anything is trained.

    groups of rollouts ──► values measured by going on from earlier points ──► what each turn really did to the outcome
            └────────────► every method's credit of the same turns ──────────► agreement of the two

Public work scores dense signals against action values without training (QVal, arXiv 2606.32034); the measures here are ours.
"""
