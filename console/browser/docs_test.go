package browser_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server"
)

func TestDocumentsPageShowsOneOperationAndFindsOthers(t *testing.T) {
	s := serve(t, server.Config{})
	b := open(t, s.url+"/docs", "favicon")
	b.shows("#docs-start", "OpenAPI document")
	high := "document.documentElement.scrollHeight"
	if n := eval[int](b, high); n > 5000 {
		t.Errorf("the beginning is %d pixels high, want 5,000 at most", n)
	}
	b.types("#docs-find", "counter remove")
	b.shows("#docs-found", "found")
	shown := eval[[]string](b, "[...document.querySelectorAll('nav li')].filter((one) => one.checkVisibility()).map((one) => one.innerText)")
	if len(shown) == 0 || len(shown) > 6 {
		t.Errorf("the search finds %q, want a few", shown)
	}
	b.types("#docs-find", "POST /incr\r")
	b.until("the operation is shown", "document.querySelector('article.shown')?.dataset.path === '/incr/{key}'")
	expect.Equal(t, "the operations that are shown", eval[int](b, "[...document.querySelectorAll('main article')].filter((one) => one.checkVisibility()).length"), 1)
	if n := eval[int](b, high); n > 12_000 {
		t.Errorf("one operation is %d pixels high, want 12,000 at most", n)
	}
	expect.Equal(t, "what is focused", eval[string](b, "document.activeElement.tagName"), "H3")
	eval[bool](b, "(location.hash = '#schemas', true)")
	b.until("the schemas are listed", "document.querySelector('#schema-Session').checkVisibility() && !document.querySelector('[aria-labelledby=schema-Session] table').checkVisibility()")
}

func TestDocumentsPageTriesAnOperationWithTheKeyOfTheTab(t *testing.T) {
	p := book(t)
	s := serve(t, server.Config{Access: p.Policy})
	b := open(t, s.url+"/docs#incr", "401", "favicon")
	article := "document.querySelector('article.shown')"
	b.until("the operation is shown", article+"?.querySelector('form')")
	field := func(label, text string) {
		t.Helper()
		eval[bool](b, fmt.Sprintf(`(() => { const input = [...%s.querySelectorAll('.field')].find((one) => one.innerText.startsWith(%s)).querySelector('input');
			input.value = %s; return input.dispatchEvent(new Event('input', { bubbles: true })); })()`, article, quote(label), quote(text)))
	}
	field("key (path)", "orders")
	field("by (query)", "41")
	b.shows("article.shown form pre", "curl -X POST")
	b.click("article.shown form button")
	b.shows("article.shown form [role=status]", "401")
	b.types("#docs-key", p.keys["use"]+"\r")
	b.shows("#docs-kept", "A key is kept")
	b.click("article.shown form button")
	b.shows("article.shown form [role=status]", "200")
	b.shows("article.shown form [role=status]", `"value": 41`)
	if call := b.text("article.shown form pre"); strings.Contains(call, "cck_") || !strings.Contains(call, "$COATCHECK_API_KEY") {
		t.Errorf("the call is %q, want it with a variable in the place of the key", call)
	}
	eval[bool](b, "(location.href = '/console/#/counters', true)")
	b.shows("cc-status", "You: use-person") // the same key
	b.shows("tbody", "41")
	expect.Equal(t, "the local storage", eval[string](b, "JSON.stringify(localStorage)"), "{}")
}

func TestDocumentsPageHasNoFaultOfAccessibility(t *testing.T) {
	script := axeScript(t)
	s := serve(t, server.Config{})
	b := open(t, s.url+"/docs", "favicon")
	eval[bool](b, script+"; true")
	for i, scheme := range []string{"light", "dark"} {
		b.prefers(scheme)
		for j, width := range []int64{1280, 390} {
			if testing.Short() && i != j {
				continue // each look at this long page takes seconds; all four run in make nightly
			}
			b.size(width, 844)
			for _, part := range []string{"docs-start", "acquireLock", "codes"} {
				eval[bool](b, "(location.hash = "+quote("#"+part)+", true)")
				b.until(part+" is shown", fmt.Sprintf("document.getElementById(%s)?.checkVisibility()", quote(part)))
				b.faultless(fmt.Sprintf("%s %s at %d", scheme, part, width))
				if *update {
					b.take(t, filepath.Join(t.ArtifactDir(), fmt.Sprintf("docs-%s-%s-%d.png", part, scheme, width)))
				}
			}
		}
	}
}
