package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	verify "github.com/coatcheck/coatcheck/internal/testing/expect" // expect is another name here
)

// fault is one way in which the shop can be wrong; "" is none.
type fault string

// The faults. Those that are known from services in use say so.
const (
	refusesBare         fault = "a key without quotes is refused"
	keepsQuotes         fault = "the quotes are taken for part of the key"
	refusesEscapes      fault = "escapes in a string are refused"
	cutsAtEscape        fault = "a key ends at its first escape"
	caseFolded          fault = "keys are compared without case"
	keyIgnored          fault = "the payload alone names the operation"
	acceptsBadEscape    fault = "any character may be escaped"
	acceptsUnterminated fault = "the last quote may be missing"
	acceptsList         fault = "of a list the first key counts"
	acceptsTrailing     fault = "text after the string is ignored"
	acceptsParameters   fault = "parameters are ignored"
	acceptsNonASCII     fault = "any byte may be in a key"
	acceptsEmpty        fault = "a header without a value is a key"
	acceptsEmptyString  fault = "the empty string is a key"
	firstOfTwo          fault = "of two header fields the first counts"
	longUnguarded       fault = "a request with an over-long key runs unguarded"
	missingPasses       fault = "a request without the header runs unguarded"
	runsRefused         fault = "the handler runs before the header is looked at"
	burnsMalformed      fault = "a malformed header uses up its key"

	noLink400       fault = "a 400 has no link"
	noLink409       fault = "a 409 has no link"
	noLink422       fault = "a 422 has no link"
	linksElsewhere  fault = "refusals link to something else"
	noProblem400    fault = "a 400 is plain text"
	noProblem409    fault = "a 409 is plain text"
	noProblem422    fault = "a 422 is plain text"
	bodyIgnored     fault = "the body is not compared"
	queryIgnored    fault = "the query is not compared"
	mismatchRuns    fault = "another payload runs before it is refused"
	mismatchForgets fault = "another payload drops the first answer"
	busyWaits       fault = "a duplicate waits for the first request"
	busyTooEarly    fault = "a duplicate in progress gets another status"
	busySucceeds    fault = "a duplicate in progress gets a success of its own"
	noRetryAfter    fault = "a 409 does not say when to ask again"

	rerunsAlways    fault = "a repeat runs the handler again"
	otherStatus     fault = "a replay is always 200"
	otherBytes      fault = "a replay's JSON is written anew"
	otherType       fault = "a replay has another content type"
	sendsFirst      fault = "the answer is sent before it is stored"
	marksNothing    fault = "a replay is not marked"
	marksFirst      fault = "the first answer is marked as a replay"
	cookiesReplayed fault = "cookies are replayed"
	hopsReplayed    fault = "hop-by-hop headers are replayed"
	errorFrees      fault = "an error status gives the key back"

	earlyLost fault = "an answer before the payload was read is an unknown outcome"

	redirectKept  fault = "a redirect is kept for the key, and its target is another payload"
	redirectLeads fault = "a redirect leads to the server behind"

	looksThenLocks fault = "it looks, then locks, and does not look again"
	hangUpFrees    fault = "a hang-up gives the key back while the handler goes on"
	hangUpWedges   fault = "a hang-up leaves the key in progress for ever"
	halfRuns       fault = "half a body is taken for the whole"
	halfBurns      fault = "half a body uses up the key"
	leaseOnly      fault = "the lease is shorter than the handler, and nothing extends it"
	leaseDoubts    fault = "a running attempt is called unknown when its lease has lapsed"
	globalKeys     fault = "all principals share one key space"

	resolverLooks  fault = "a resolver looks and closes nothing"
	resolverRaces  fault = "a resolver looks, then closes, and does not look again"
	resolverMute   fault = "a resolver says completed without the answer"
	resolverKeeps  fault = "a second question closes no further"
	resolverOpens  fault = "a late question opens what was closed further"
	resolverTells  fault = "a resolver answers a client's question"
	resolverForbid fault = "a closed operation stays closed for a newer attempt"

	tokenRefused     fault = "a token beside a key is refused"
	tokenDeleted     fault = "a token is deleted by its use"
	tokenRerun       fault = "a token can be used again and again"
	madeUpTokens     fault = "any text is a token"
	tokenBodyIgnored fault = "a token fits any payload"
	tokenOfAnybody   fault = "a token fits any principal"
	tokenTwice       fault = "tokens are so short that they are issued twice"
)

// breaks says which checks have to find which fault.
var breaks = []struct {
	fault  fault
	checks []string
}{
	{refusesBare, []string{"key-quoted-and-bare"}},
	{keepsQuotes, []string{"key-quoted-and-bare"}},
	{refusesEscapes, []string{"key-escapes"}},
	{cutsAtEscape, []string{"key-escapes"}},
	{caseFolded, []string{"keys-differ"}},
	{keyIgnored, []string{"keys-differ"}},
	{acceptsBadEscape, []string{"key-bad-escape"}},
	{acceptsUnterminated, []string{"key-unterminated"}},
	{acceptsList, []string{"key-list"}},
	{acceptsTrailing, []string{"key-trailing-text"}},
	{acceptsParameters, []string{"key-parameters"}},
	{acceptsNonASCII, []string{"key-non-ascii"}},
	{acceptsEmpty, []string{"key-empty"}},
	{acceptsEmptyString, []string{"key-empty-string"}},
	{firstOfTwo, []string{"key-two-fields"}},
	{longUnguarded, []string{"key-too-long"}},
	{missingPasses, []string{"header-missing"}},
	{runsRefused, []string{"header-missing", "key-list", "key-too-long", "token-made-up"}},
	{burnsMalformed, []string{"key-list", "key-trailing-text", "key-parameters"}},

	{noLink400, []string{"400-link"}},
	{noLink409, []string{"409-link"}},
	{noLink422, []string{"422-link"}},
	{linksElsewhere, []string{"400-link", "409-link", "422-link"}},
	{noProblem400, []string{"400-problem"}},
	{noProblem409, []string{"409-problem"}},
	{noProblem422, []string{"422-problem"}},
	{bodyIgnored, []string{"422-mismatch", "token-mismatch"}},
	{queryIgnored, []string{"422-query"}},
	{mismatchRuns, []string{"422-mismatch", "422-query", "token-mismatch"}},
	{mismatchForgets, []string{"422-keeps-answer", "token-mismatch"}},
	{busyWaits, []string{"409-in-progress"}},
	{busyTooEarly, []string{"409-in-progress"}},
	{busySucceeds, []string{"409-in-progress", "burst"}},
	{noRetryAfter, []string{"409-retry-after"}},

	{rerunsAlways, []string{"replay-equal", "burst", "token-once"}},
	{otherStatus, []string{"replay-equal"}},
	{otherBytes, []string{"replay-equal"}},
	{otherType, []string{"replay-equal"}},
	{sendsFirst, []string{"replay-at-once"}},
	{marksNothing, []string{"replay-marker"}},
	{marksFirst, []string{"replay-marker"}},
	{cookiesReplayed, []string{"replay-no-cookies"}},
	{hopsReplayed, []string{"replay-no-hop-by-hop"}},
	{errorFrees, []string{"error-replayed"}},

	{earlyLost, []string{"early-answer"}},

	{redirectKept, []string{"redirect-followed"}},
	{redirectLeads, []string{"redirect-inside"}},

	{looksThenLocks, []string{"burst", "token-burst"}},
	{hangUpFrees, []string{"hang-up"}},
	{hangUpWedges, []string{"hang-up"}},
	{halfRuns, []string{"half-sent-body"}},
	{halfBurns, []string{"half-sent-body"}},
	{leaseOnly, []string{"slow-owner"}},
	{leaseDoubts, []string{"slow-owner"}},
	{globalKeys, []string{"principals"}},

	{resolverLooks, []string{"resolver-before", "resolver-late"}},
	{resolverRaces, []string{"resolver-race"}},
	{resolverMute, []string{"resolver-after"}},
	{resolverForbid, []string{"resolver-before"}},
	{resolverKeeps, []string{"resolver-before"}},
	{resolverOpens, []string{"resolver-before"}},
	{resolverTells, []string{"resolver-refuses"}},

	{tokenRefused, []string{"token-and-key"}},
	{tokenDeleted, []string{"token-once"}},
	{tokenRerun, []string{"token-once"}},
	{madeUpTokens, []string{"token-made-up"}},
	{tokenBodyIgnored, []string{"token-mismatch"}},
	{tokenOfAnybody, []string{"token-of-another"}},
	{tokenTwice, []string{"tokens-differ"}},
}

func TestEveryFaultIsFound(t *testing.T) {
	for _, row := range breaks {
		t.Run(string(row.fault), func(t *testing.T) {
			t.Parallel()
			out, code := report(t, append(openShop(t, row.fault), "-run", "^("+strings.Join(row.checks, "|")+")$")...)
			verify.Equal(t, "exit code", code, failed)
			verify.Equal(t, "ok", out.OK, false)
			for _, r := range out.Checks {
				if r.Verdict != fails || r.Sent == "" || r.Came == "" || r.Expected == "" {
					t.Errorf("a check that has to find the fault, and say what was sent, came and was expected: got %s", r.text())
				}
			}
			verify.Equal(t, "checks that ran", len(out.Checks), len(row.checks))
		})
	}
}

// A fault is found by what it changes, and by nothing else: the checks that do not look at it pass.
// Here every check runs against some faults of each kind.
func TestAFaultIsNotFoundWhereItIsNot(t *testing.T) {
	for _, wrong := range []fault{acceptsList, noProblem409, mismatchForgets, errorFrees, halfRuns, tokenOfAnybody, resolverMute} {
		t.Run(string(wrong), func(t *testing.T) {
			t.Parallel()
			out, _ := report(t, append(openShop(t, wrong), "-n", "5")...)
			var found, want []string
			for _, r := range out.Checks {
				if r.Verdict != pass {
					found = append(found, r.Name)
				}
			}
			for _, row := range breaks {
				if row.fault == wrong {
					want = row.checks
				}
			}
			verify.Equal(t, "checks that find the fault", slices.Sorted(slices.Values(found)), slices.Sorted(slices.Values(want)))
		})
	}
}

// Without a count the suite has only the answers to look at. What they can show it still finds.
func TestFaultsAreFoundWithoutACount(t *testing.T) {
	blind := []string{"-count-url", ""}
	for _, row := range breaks {
		if slices.Contains([]fault{runsRefused, mismatchRuns}, row.fault) {
			continue // an effect that no answer tells of
		}
		t.Run(string(row.fault), func(t *testing.T) {
			t.Parallel()
			out, code := report(t, slices.Concat(openShop(t, row.fault), blind, []string{"-run", "^(" + strings.Join(row.checks, "|") + ")$"})...)
			verify.Equal(t, "exit code", code, failed)
			verify.Equal(t, "checks that failed", out.Failed, len(row.checks))
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		out, code := report(t, slices.Concat(openShop(t, ""), blind, []string{"-strict"})...)
		verify.Equal(t, "exit code", code, allPassed)
		verify.Equal(t, "checks that failed", out.Failed, 0)
	})
	t.Run("none, and replays are not marked", func(t *testing.T) {
		t.Parallel()
		out, code := report(t, slices.Concat(openShop(t, marksNothing), blind, []string{"-marker", ""})...)
		verify.Equal(t, "exit code", code, allPassed)
		verify.Equal(t, "checks that failed", out.Failed, 0)
		verify.Equal(t, "checks that were not applicable", skipped(out), []string{"replay-marker", "hang-up"})
	})
}

func TestEveryCheckCanFail(t *testing.T) {
	found := map[string]bool{}
	for _, row := range breaks {
		for _, name := range row.checks {
			found[name] = true
		}
	}
	for _, c := range checks() {
		if !found[c.name] {
			t.Errorf("%s: no broken server shows that it can fail", c.name)
		}
		delete(found, c.name)
	}
	for name := range found {
		t.Errorf("%s is no check", name)
	}
}

func TestNothingIsFoundWhereNothingIsWrong(t *testing.T) {
	out, code := report(t, append(openShop(t, ""), "-strict")...)
	verify.Equal(t, "exit code", code, allPassed)
	verify.Equal(t, "checks passed", out.Passed, len(checks()))
}

// report runs the suite with these arguments and returns what it tells as JSON; what has not passed
// goes to the test's log.
func report(t *testing.T, args ...string) (outcome, int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), append(args, "-json"), &stdout, &stderr)
	var out outcome
	if err := json.Unmarshal(stdout.Bytes(), &out); err != nil {
		t.Fatalf("%q: exit code %d, and the report is no JSON: %v: %s%s", args, code, err, &stdout, &stderr)
	}
	for _, r := range out.Checks {
		if r.Verdict != pass {
			t.Log(r.text())
		}
	}
	return out, code
}
