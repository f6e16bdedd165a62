package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// The field is found however a body is cut into pieces, and nothing else is.
func TestFieldIsFoundInPiecesOfABody(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		media, body string
		has         bool
	}{
		{"application/x-www-form-urlencoded", "a=1&_method=put", true},
		{"application/x-www-form-urlencoded", "%5F%6D%65%74%68%6F%64=put", true},
		{"", "a;  +%20%09[method%00=put", true},
		{"application/x-www-form-urlencoded", "x=1&[[%5D_method]]=put", true}, // as Rack reads it
		{"application/x-www-form-urlencoded", strings.Repeat("[", 300) + "_method" + strings.Repeat("]", 300) + "=put", true},
		{"multipart/form-data", `name="[_method]"`, true},
		{"multipart/form-data", "name=" + strings.Repeat(" ", 300) + "_method\r\n", true},
		{"multipart/form-data", "name=\"\\_\\met\\hod\"", true},
		{"application/problem+json", `{"\u005F\u006d\u0065\u0074\u0068\u006f\u0064"` + strings.Repeat(" ", 300) + ": 1}", true},
		{"application/x-www-form-urlencoded", "pay_method=card&method=x&a=_method&b=%26_method%3Dx&_methods=1&_metho=d", false},
		{"application/json", `{"payment_method": "_method", "b": "{\"_method\":1}", "_methods": 1}`, false},
		{"multipart/form-data", "name=\"payment_method\"\r\n\r\nthe _method of it\r\n", false},
		{"text/plain", "_method=delete", false},
		{"application/octet-stream", "_method=delete", false},
	} {
		for piece := 1; piece <= len(row.body); piece++ {
			request, _ := http.NewRequest(http.MethodPost, "/", &cutUp{row.body, piece})
			request.Header.Set("Content-Type", row.media)
			body := &searchedBody{ReadCloser: request.Body, fields: fieldsOf(request), seam: []byte("&")}
			text, err := io.ReadAll(body)
			if row.has != (err != nil) || !row.has && string(text) != row.body {
				t.Fatalf("%s %q in pieces of %d: read %q, error %v, want an error: %v", row.media, row.body, piece, text, err, row.has)
			}
		}
	}
}

// cutUp is a text that is read some bytes at a time.
type cutUp struct {
	rest string
	size int
}

func (p *cutUp) Read(into []byte) (int, error) {
	if p.rest == "" {
		return 0, io.EOF
	}
	n := copy(into, p.rest[:min(p.size, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}
