-- record: the record of an operation, the string in KEYS[1]. It begins with these words, each
-- followed by a tab; a word that nobody has written is empty. A line feed ends them, and the
-- recorded answer follows.
--
--   state        issued | claimed | completed
--   owner        the secret of the attempt that holds the claim
--   until        the end of the attempt's lease
--   awaited      '1' if a client waits for the end of the attempt
--   scope        of an issued token
--   keep, lease, fingerprint, policy, route, request, whose, asks
--                the terms of the claim, see token_claim
--   fence, attempts, began
--                of the attempt
--   claimable    until when an issued token waits for its claim; empty for a client's own key
--   settled, decision
--                the last decision about a doubt, and its digest
--   resolver, resolve_until, asked
--                see operation_resolve
--
-- Spans in milliseconds; times in milliseconds since 1970. Package idempotency bounds each word, so
-- that all of them are shorter than 2,048 bytes: who need not have the answer reads no more.

-- state_of returns the state of a record, nil where there is none.
local function state_of(text)
  if not text or text == '' then
    return nil
  end
  refuse_newer('token', text)
  local state = string.match(text, '^%l+')
  if state ~= 'claimed' and state ~= 'completed' and state ~= 'issued' then
    error('WRONGTYPE the key of an operation holds something else', 0)
  end
  return state
end
