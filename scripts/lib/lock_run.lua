-- lock_run: the number of fences that a grant has after its own. A process that holds a lock alone
-- hands it on within itself with one of them each, without asking Redis, so the next grant's fence
-- comes after them.
local run_length = 16
