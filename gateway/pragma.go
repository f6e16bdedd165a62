package gateway

import (
	"bufio"
	"net/http"
	"strings"
	"unsafe"
)

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
