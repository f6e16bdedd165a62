package gateway

import (
	"net/http"
	"strconv"
	"strings"
	"unicode"
)

// statusTextHeader has the text beside an answer's status, where it is not the usual one, on its
// way from the upstream to the client. It is recorded with the other headers, and never sent.
const statusTextHeader = "Coatcheck-Status-Text"

// keepStatusText notes the text beside an answer's status.
func keepStatusText(answer *http.Response) {
	answer.Header.Del(statusTextHeader)
	text := strings.TrimSpace(strings.TrimPrefix(answer.Status, strconv.Itoa(answer.StatusCode)))
	if text != "" && text != http.StatusText(answer.StatusCode) && !strings.ContainsFunc(text, unicode.IsControl) {
		answer.Header.Set(statusTextHeader, text)
	}
}
