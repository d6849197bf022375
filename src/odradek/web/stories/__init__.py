"""Stories: the shipped code in the simulator, recorded step by step for somebody who looks on.

`catalogue` lists them, and plays one: a script acts on a simulated cluster (`story_cluster`), and a
recorder (`recorder`) takes a frame after each change it sees and says in sentences what has changed
(`sentences`). A frame is a value (`values`); `pages` shows it.
"""
