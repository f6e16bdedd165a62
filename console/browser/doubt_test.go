package browser_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/server"
)

// TestOperatorSettlesTenInDoubtByTheOperationsPage has an operator who knows only
// docs/operations.md and the console get ten operations out of doubt, by what the page says to
// press.
func TestOperatorSettlesTenInDoubtByTheOperationsPage(t *testing.T) {
	p := book(t)
	s := serve(t, server.Config{Access: p.Policy})
	b := open(t, s.page("counters"))
	b.types("dialog input", p.keys["admin"]+"\r")
	b.asksNothing()
	page := operatorsPage(t, "With a key of role `admin`: press")
	page.presses(b, "In doubt")
	b.shows("main", "No operations in doubt")
	tokens := map[string]string{}
	for n := range 10 {
		request := fmt.Sprint("charge-", n)
		tokens[request] = s.inDoubt(request, p.use())
	}
	b.until("all are listed", "document.querySelectorAll('tbody tr').length === 10")
	// what the service's own records say
	found := func(n int) string {
		return []string{"It happened", "It did not happen", "It is not known, or it must not run"}[n%3]
	}
	for n := range 10 {
		request := fmt.Sprint("charge-", n)
		eval[bool](b, `(() => { [...document.querySelectorAll('tbody tr')].find((row) => row.innerText.includes(`+quote(request)+`)).querySelector('a').click(); return true; })()`)
		b.shows(".settle", "")
		b.shows("main", request)
		page.chooses(b, "What became of it", found(n))
		if found(n) == "It happened" {
			page.fills(b, "Status of the answer", "202")
			page.fills(b, "Content type", "text/plain")
			page.fills(b, "Body of the answer", "paid "+request)
		}
		page.fills(b, "Why", "the ledger, line "+request)
		page.presses(b, "Settle")
		if n == 0 {
			b.shows("dialog", "This cannot be undone")
			b.shows("dialog", "paid "+request)
			page.presses(b, "Go back")
			page.presses(b, "Settle")
		}
		page.presses(b, "Settle for good")
		b.shows("#said", "The operation is settled")
		page.presses(b, "← All in doubt")
		b.until("it is listed no more", fmt.Sprintf("document.querySelectorAll('tbody tr').length === %d", 9-n))
	}
	b.shows("main", "No operations in doubt")
	page.isDone()
	for n := range 10 {
		request := fmt.Sprint("charge-", n)
		claim := func(status int) map[string]any {
			return s.send(status, "POST", "/token/"+tokens[request]+"/claim", `{"fingerprint":"f"}`, p.use())
		}
		switch found(n) {
		case "It happened":
			answer := claim(200)
			expect.Equal(t, request+": the claim of what happened", answer["outcome"], any("replay"))
			expect.Equal(t, request+": its status", answer["response"].(map[string]any)["status"], any(202.0))
		case "It did not happen":
			expect.Equal(t, request+": the claim of what did not happen", claim(200)["outcome"], any("granted"))
		default:
			expect.Equal(t, request+": the claim of what must not run", claim(409)["code"], any("idempotency-outcome-unknown"))
		}
	}
}

// An answer may be as long as its field takes.
func TestLongestAnswerOfAnOperatorIsRecorded(t *testing.T) {
	s := serve(t, server.Config{})
	token := s.inDoubt("charge-1")
	var listed []any
	expect.Eventually(t, "the operation is in doubt", func() bool {
		listed = s.send(200, "GET", "/operation?state=in-doubt", "")["operations"].([]any)
		return len(listed) == 1
	})
	b := open(t, s.page("doubt/"+listed[0].(map[string]any)["operation"].(string)))
	b.shows(".settle", "Settle")
	// one press settles nothing: nothing is chosen, and the reason is missing
	b.click(".settle button")
	expect.Equal(t, "whether the form can be sent as it is", eval[bool](b, "document.querySelector('.settle').checkValidity()"), false)
	eval[bool](b, "(document.querySelector('textarea').value = 'é'.repeat(document.querySelector('textarea').maxLength), true)")
	eval[bool](b, `(() => { const list = document.querySelector('.settle select'); list.value = 'completed'; return list.dispatchEvent(new Event('change')); })()`)
	b.types(b.labelled("Status of the answer"), "201")
	b.types(b.labelled("Why"), "the ledger")
	b.click(".settle button")
	b.shows("dialog", "Every repeat gets")
	b.click("dialog .danger")
	b.shows("#said", "The operation is settled")
	answer := s.send(200, "POST", "/token/"+token+"/claim", `{"fingerprint":"f"}`)["response"].(map[string]any)
	expect.Equal(t, "bytes of the answer, as base64", len(answer["body_base64"].(string)), 4*66_667)
}

// inDoubt claims a token whose attempt falls silent at once, and returns it.
func (s *service) inDoubt(request string, header ...string) (token string) {
	token = s.send(201, "POST", "/token", "", header...)["token"].(string)
	s.send(200, "POST", "/token/"+token+"/claim", `{"fingerprint":"f","lease_ms":100}`, append(header, "X-Request-Id: "+request)...)
	return token
}

// instructions are what a page says to press, choose and fill in: the words in italics.
type instructions struct {
	*testing.T

	told map[string]bool // whether it was done
}

var italics = regexp.MustCompile(`\*([^*]+)\*`)

// operatorsPage reads the paragraph of docs/operations.md, of those that tell an operator of the
// console, that begins like that.
func operatorsPage(t *testing.T, beginning string) *instructions {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatalf("reading what operators are told: %v", err)
	}
	_, part, _ := strings.Cut(string(text), "### Settling in the console\n")
	part, _, _ = strings.Cut(part, "\n#")
	_, part, _ = strings.Cut(part, "\n"+beginning)
	part, _, _ = strings.Cut(part, "\n\n")
	page := &instructions{T: t, told: map[string]bool{}}
	for _, match := range italics.FindAllStringSubmatch(part, -1) {
		page.told[strings.Join(strings.Fields(match[1]), " ")] = false
	}
	return page
}

func (page *instructions) says(word string) {
	page.Helper()
	if _, told := page.told[word]; !told {
		page.Errorf("docs/operations.md, Settling in the console: it does not name *%s*", word)
	}
	page.told[word] = true
}

// isDone checks that everything that the page names was there.
func (page *instructions) isDone() {
	page.Helper()
	for word, done := range page.told {
		if !done {
			page.Errorf("docs/operations.md, Settling in the console: it names *%s*, which the console does not have", word)
		}
	}
}

// presses presses the link or button with that text.
func (page *instructions) presses(b *tab, text string) {
	page.Helper()
	page.says(text)
	find := fmt.Sprintf("[...document.querySelectorAll('a, button, summary')].find((one) => one.innerText === %s && one.checkVisibility())", quote(text))
	b.until("a button "+text, find)
	eval[bool](b, "("+find+".click(), true)")
}

// fills writes into the field with that label.
func (page *instructions) fills(b *tab, label, text string) {
	page.Helper()
	page.says(label)
	b.types(b.labelled(label), text)
}

// chooses chooses from the list with that label.
func (page *instructions) chooses(b *tab, label, choice string) {
	page.Helper()
	page.says(label)
	page.says(choice)
	b.chooses(label, choice)
}
