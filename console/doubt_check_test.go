//go:build check

package console_test

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/server"
)

// inDoubt claims a token whose attempt falls silent at once, and returns the operation's name.
func (s *service) inDoubt(request string) (token string) {
	token = s.send(201, "POST", "/token", "")["token"].(string)
	s.send(200, "POST", "/token/"+token+"/claim", `{"fingerprint":"f","lease_ms":100}`, "X-Request-Id: "+request)
	return token
}

func TestOperatorSettlesWhatIsInDoubt(t *testing.T) {
	s := serve(t, server.Config{})
	tokens := map[string]string{}
	for _, outcome := range []string{"completed", "not-begun", "refused"} {
		tokens[outcome] = s.inDoubt("r-" + outcome)
	}
	b := open(t, s.page("doubt"))
	b.shows("main h1", "In doubt")
	for _, outcome := range []string{"completed", "not-begun", "refused"} {
		b.shows("tbody", "r-"+outcome)
		eval[bool](b, `(() => { [...document.querySelectorAll('tbody tr')].find((row) => row.innerText.includes('r-`+outcome+`')).querySelector('a').click(); return true; })()`)
		b.shows("main", "in-doubt")
		b.shows("main", "r-"+outcome)
		eval[bool](b, `(() => { const set = (control, value) => { control.value = value; control.dispatchEvent(new Event('change')); };
			set(document.querySelector('.settle select'), '`+outcome+`');
			if ('`+outcome+`' === 'completed') set(document.querySelector('.settle textarea'), '{"id":"pay_1"}');
			return true; })()`)
		b.click(".settle button[type=submit]")
		b.shows("#said", "settled: "+outcome)
		b.shows("main", "settled as "+outcome)
		b.click("main a[href='#/doubt']")
	}
	b.shows("main", "No operations in doubt")
	claimed := s.send(200, "POST", "/token/"+tokens["completed"]+"/claim", `{"fingerprint":"f"}`)
	expect.Equal(t, "the claim of what was completed", claimed["outcome"], any("replay"))
	claimed = s.send(200, "POST", "/token/"+tokens["not-begun"]+"/claim", `{"fingerprint":"f"}`)
	expect.Equal(t, "the claim of what had not begun", claimed["outcome"], any("granted"))
	s.send(409, "POST", "/token/"+tokens["refused"]+"/claim", `{"fingerprint":"f"}`)
}
