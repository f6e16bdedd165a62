package frontdoor_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestTargetHasOneOfTheFormsOfTheStandard(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"GET /": true, "GET //a": true, "GET /a?b=http://c": true, "GET /x:http://h/p": true, "GET http://h/p": true, "GET HTTPS://h": true, "OPTIONS *": true,
		"GET *": false, "POST x:http://h/p": false, "POST x:p": false, "POST x:/p": false, "POST http:p": false, "POST http:/p": false, "POST http:///p": false,
		"POST ftp://h/p": false, "GET http://u@h/p": false, "CONNECT h:80": false, "CONNECT /": false,
	} {
		request, err := http.ReadRequest(bufio.NewReader(strings.NewReader(line + " HTTP/1.1\r\nHost: x\r\n\r\n")))
		if err != nil {
			t.Errorf("reading %q: %v", line, err)
			continue
		}
		expect.Equal(t, line, frontdoor.WellFormedTarget(request), want)
	}
}
