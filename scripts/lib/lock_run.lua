-- lock_run: how many fences a grant has to itself behind its own. A process that holds a lock alone
-- hands it on within itself with one of them each, and asks nobody: so the next fence that is
-- minted lies behind them.
local run_length = 16
