-- trusted: stands after lib/incarnation in the scripts of a store that trusts restarts. State that
-- is there belongs to the incarnation that is noted in it, whatever the server's is now: a server
-- that starts again, or takes over, has all that was confirmed. State that is missing is judged as
-- without it.
local incarnation_of_server = incarnation
local function incarnation(noted)
  return noted and noted ~= '' and noted or incarnation_of_server()
end
