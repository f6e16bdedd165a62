package browser_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// Names, owners and identities are checked where they come in, but what stands in Redis may have
// been written by others. Whatever the server answers is text.
func TestHostileAnswersAreShownAsText(t *testing.T) {
	const evil = `"'><img src=x onerror="window.pwned=1"><script>window.pwned=1</script><svg onload="window.pwned=1">{{7*7}}&lt;b&gt;` + "\u202e\u0000"
	bad, err := json.Marshal(evil)
	if err != nil {
		t.Fatalf("a hostile text as JSON: %v", err)
	}
	answer := func(path string) string {
		path, _, _ = strings.Cut(path, "?")
		switch {
		case path == "/counter":
			return fmt.Sprintf(`{"counters":[{"key":%s,"value":1},{"key":"__proto__","value":%s},{"key":"constructor","value":null,"error":%s}]}`, bad, bad, bad)
		case path == "/worker":
			return fmt.Sprintf(`{"pools":[{"pool":%s,"layout":%s,"size":4,"used":1,"ttl_ms":1000,"quarantined_ms":9000}]}`, bad, bad)
		case strings.HasPrefix(path, "/worker/"):
			return fmt.Sprintf(`{"pool":%s,"layout":%s,"epoch":%s,"size":1,"used":1,"ttl_ms":1000,"server_time":"2026-11-21T15:53:38Z","slots":[{"worker_id":0,"state":"held","holder":%s,"fence":1,"not_before":%s,"not_after":"2026-11-21T15:53:39Z"}]}`, bad, bad, bad, bad, bad)
		case path == "/lock":
			return fmt.Sprintf(`{"locks":[{"name":%s,"mode":%s,"holders":[{"owner":%s,"fence":1,"until":%s}],"waiting":1,"server_time":"2026-11-21T15:53:38Z"}]}`, bad, bad, bad, bad)
		case strings.HasPrefix(path, "/lock/"):
			return fmt.Sprintf(`{"name":%s,"mode":%s,"holders":[{"owner":%s,"fence":1}],"queue":[{"owner":%s,"mode":%s,"since":%s}],"waiting":1,"server_time":"2026-11-21T15:53:38Z"}`, bad, bad, bad, bad, bad, bad)
		case strings.HasPrefix(path, "/token/"):
			return fmt.Sprintf(`{"state":%s,"expires_at":%s,"attempts":1,"fence":1,"scope":%s}`, bad, bad, bad)
		case strings.HasPrefix(path, "/id/decode/"):
			return fmt.Sprintf(`{"id":%s,"time":%s,"worker_id":%s,"sequence":%s,"layout":%s,"epoch":%s}`, bad, bad, bad, bad, bad, bad)
		case path == "/readyz":
			return fmt.Sprintf(`{"ready":true,"store":%s,"ack":1,"reason":%s}`, bad, bad)
		case path == "/console/api/session":
			return fmt.Sprintf(`{"role":"admin","principal":%s,"names":[%s],"access":true,"readonly":false,"store":%s,"durability":%s,"hazards":[%s]}`, bad, bad, bad, bad, bad)
		case path == "/console/api/history":
			return fmt.Sprintf(`{"until":%s,"step_ms":5000,"series":{"counters":[%s],"__proto__":[1,%s]}}`, bad, bad, bad)
		case path == "/events":
			return fmt.Sprintf("event: hello\ndata: {\"since\":%s,\"tally\":{\"token.issued\":%s}}\n\ndata: {\"at\":%s,\"kind\":\"lock.granted\",\"name\":%s,\"holder\":%s}\n\ndata: {\"at\":%s,\"kind\":%s}\n\n", bad, bad, bad, bad, bad, bad, bad)
		}
		return ""
	}
	b := open(t, answered(t, answer)+"#/counters")
	shown := func(selector string) {
		t.Helper()
		b.shows(selector, "window.pwned=1")
		if eval[bool](b, "window.pwned === 1 || Boolean(document.querySelector('main img, main script, main b, header img, dialog img'))") {
			t.Errorf("%s: text became HTML", selector)
		}
	}
	shown("main tbody")
	shown("cc-status")
	b.view("overview", "Overview")
	shown("main .needs")
	b.view("workers", "Worker pools")
	shown("main tbody")
	b.view("workers/%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "Pool <img")
	b.click(".ring .cell")
	shown(".detail")
	b.view("locks", "Locks")
	shown("main tbody")
	b.view("locks/x", "Lock x")
	shown("main tbody")
	b.click("button.danger")
	shown("dialog")
	b.press("\x1b")
	b.view("tokens", "Tokens")
	b.types(b.labelled("Token"), "t\r")
	shown(".detail")
	b.view("decode", "Decode")
	b.types(b.labelled("Id"), "1\r")
	shown(".detail")
	b.view("events", "Events")
	shown(".log")
}

// The policy does not only stand in a header: the browser enforces it.
func TestPolicyForbidsInlineScriptsHTMLFromTextAndOtherServers(t *testing.T) {
	b := open(t, answered(t, func(string) string { return "" })+"#/counters", "Content Security Policy", "Content-Security-Policy", "violates", "TrustedHTML", "TrustedScript", "net::ERR_BLOCKED_BY_CSP")
	for name, attempt := range map[string]string{
		"HTML from text": "(() => { try { document.body.innerHTML = '<p>'; return 'done' } catch (e) { return e.name } })()",
		"eval":           "(() => { const s = document.createElement('script'); try { s.textContent = 'window.ran = 1'; document.head.append(s); return window.ran ? 'done' : 'blocked' } catch (e) { return e.name } })()",
		"another server": "fetch('http://127.0.0.1:9/').then(() => 'done', (e) => e.name)",
	} {
		if got := eval[string](b, attempt); got == "done" {
			t.Errorf("%s works", name)
		}
	}
}
