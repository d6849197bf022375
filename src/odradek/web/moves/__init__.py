"""Plans that move replicas: made, shown, executed in batches, and rolled back.

request    a plan as the page's forms name it (pure)
grid       replicas that are put elsewhere one by one (pure)
planned    a plan as a table with bytes, bound, dangers and commands (pure)
saved      the file of the plan that is executed, from which it is rolled back
mover      executes one plan at a time
collect    what moves now, under which throttles
view       that as values (pure)
pages      the routes
"""
