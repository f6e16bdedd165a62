package gateway

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
	"unicode"
	"unsafe"
)

// What net/http would change of an answer, and the gateway keeps as it came.

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

// addedByGo is the text of the Cache-Control that net/http adds to what has Pragma: no-cache. It is
// a constant of net/http, so its address tells it from one that was sent.
var addedByGo = func() *byte {
	const pragma = "HTTP/1.1 204 No Content\r\nPragma: no-cache\r\n\r\n"
	answer, err := http.ReadResponse(bufio.NewReader(strings.NewReader(pragma)), nil)
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	return unsafe.StringData(answer.Header.Get("Cache-Control")) //nolint:gosec // an address to compare
}()

// dropAdded drops a Cache-Control that net/http has added.
func dropAdded(header http.Header) {
	values := header["Cache-Control"]
	if len(values) == 1 && values[0] != "" && unsafe.StringData(values[0]) == addedByGo { //nolint:gosec // as above
		delete(header, "Cache-Control")
	}
}
