package main

import "slices"

// checks is everything that is looked at, in the order of the report.
func checks() []check {
	return slices.Concat(grammarChecks(), refusalChecks(), replayChecks(), raceChecks(), tokenChecks(), resolverChecks())
}

func grammarChecks() []check {
	rows := []check{
		{"key-quoted-and-bare", promise, `"k" (an RFC 8941 string) and k, the same without its quotes, are one key`, nil, quotedAndBare},
		{"key-escapes", must, "an escaped quote or backslash in a string is part of the key", nil, escapes},
		{"keys-differ", must, "another key is another operation, with the same payload too; case counts", nil, keysDiffer},
	}
	for _, m := range malformedKeys {
		rows = append(rows, check{m.name, m.level, m.what + " is refused with 400, runs nothing and uses up no key", nil, m.look})
	}
	return append(rows, check{"header-missing", should,
		"a request without the header is refused with 400 and runs nothing", nil, headerMissing})
}

func refusalChecks() []check {
	busy := []need{slowHandler}
	return []check{
		{"400-link", should, "the 400 links to the route's policy, in a Link header or in its body", nil, missingLink},
		{"400-problem", should, "the 400 is application/problem+json (RFC 9457)", nil, missingProblem},
		{"422-mismatch", should, "the same key with another payload is refused with 422 and runs nothing", nil, mismatchBody},
		{"422-query", promise, "the same key with another query is refused with 422 and runs nothing", nil, mismatchQuery},
		{"422-keeps-answer", must, "a refused payload does not harm the first answer: the right one still gets it", nil, mismatchKeeps},
		{"422-link", should, "the 422 links to the route's policy, in a Link header or in its body", nil, mismatchLink},
		{"422-problem", should, "the 422 is application/problem+json (RFC 9457)", nil, mismatchProblem},
		{"409-in-progress", must,
			"a duplicate of a request that is still running is refused with 409, and later gets its answer",
			busy, inProgress},
		{"409-retry-after", should, "the 409 says when to ask again: Retry-After", busy, retryAfter},
		{"409-link", should, "the 409 links to the route's policy, in a Link header or in its body", busy, progressLink},
		{"409-problem", should, "the 409 is application/problem+json (RFC 9457)", busy, progressProblem},
	}
}

func replayChecks() []check {
	return []check{
		{"replay-equal", must, "a repeat on another connection is not run again: same status, same bytes, same content type", nil, replayEqual},
		{"replay-at-once", promise,
			"a repeat that is sent when the first answer begins to arrive gets that answer: it was recorded before it was sent",
			nil, replayAtOnce},
		{"replay-marker", should, "a replayed answer is marked as one, and a first answer is not", []need{mark}, replayMarker},
		{"replay-no-cookies", promise, "the cookies of the first answer are not replayed", nil, replayCookies},
		{"replay-no-hop-by-hop", promise, "headers that Connection names belong to one connection and are not replayed", nil, replayHops},
		{"error-replayed", should,
			"an error that the handler answered after it had begun is replayed like any other answer",
			[]need{badHandler}, errorReplayed},
		{"early-answer", promise,
			"an error that the service answers before it has read the payload reaches the client, and leaves no key in doubt",
			[]need{early}, earlyAnswer},
		{"redirect-followed", must,
			"a client that follows a 307 or 308 with its key has its operation run, once: the redirect is not kept for the key",
			[]need{redirects}, redirectFollowed},
		{"redirect-inside", promise, "a 307 or 308 leads to the same server, and past no gateway", []need{redirects}, redirectInside},
	}
}

func raceChecks() []check {
	return []check{
		{"burst", must, "of many duplicates at once exactly one runs; the others get its answer or 409", nil, burst},
		{"hang-up", must,
			"a client that hangs up does not get its operation run again: its retry gets the first answer",
			[]need{slowHandler}, hangUp},
		{"half-sent-body", must, "a client that hangs up in the middle of its body has nothing run and no key used up", nil, halfSent},
		{"slow-owner", must,
			"a handler that takes longer than its lease is not overlapped: a retry gets 409 until the answer is there",
			[]need{slowHandler, lease}, slowOwner},
		{"principals", must,
			"the same key of two principals is two operations: neither gets the other's answer",
			[]need{principals}, twoPrincipals},
	}
}

func resolverChecks() []check {
	behind := []need{resolver}
	return []check{
		{"resolver-before", promise,
			"the service, asked before an attempt, says not-begun; that attempt and older ones have no effect then, whatever is asked " +
				"next, and a newer one has",
			behind, resolverBefore},
		{"resolver-after", promise,
			"the service, asked after an attempt, says completed, with the answer that the attempt gave",
			behind, resolverAfter},
		{"resolver-late", promise, "an attempt that was under way when the service said not-begun has no effect", behind, resolverLate},
		{"resolver-refuses", promise,
			"a question without Idempotency-Resolve: true, which a client may have sent, is refused",
			behind, resolverRefuses},
		{"resolver-race", promise,
			"asked beside an attempt, the service says what has become of it, whichever comes first",
			behind, resolverRace},
	}
}

func tokenChecks() []check {
	issued := []need{tokens}
	return []check{
		{"token-once", promise, "an issued token works once, and its repeat is a replay", issued, tokenOnce},
		{"token-burst", promise, "of many duplicates at once with one issued token exactly one runs", issued, tokenBurst},
		{"token-and-key", promise,
			"an issued token counts, and a key beside it, which a browser or a library may add, is ignored",
			issued, tokenAndKey},
		{"token-made-up", promise, "a token that was never issued is refused with 410 or another 4xx, and runs nothing", issued, tokenMadeUp},
		{"token-mismatch", promise, "a used token with another payload is refused with 422, and keeps its answer", issued, tokenMismatch},
		{"token-of-another", promise,
			"a token that was issued to one principal is refused to another, and runs nothing",
			[]need{tokens, principals}, tokenOfAnother},
		{"tokens-differ", promise, "no token is issued twice", issued, tokensDiffer},
	}
}
