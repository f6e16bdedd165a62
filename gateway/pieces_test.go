package gateway

import (
	"io"
	"strings"
	"testing"
)

// The field is found however a body is cut into pieces, and nothing else is.
func TestFieldIsFoundInPiecesOfABody(t *testing.T) {
	t.Parallel()
	spaces := strings.Repeat(" ", 300)
	for body, has := range map[string]bool{
		"a=1&_method=put":                true,
		"%5F%6D%65%74%68%6F%64=put":      true,
		"a;  +%20%09[method%00=put":      true,
		"x=1&[[%5D_method]]=put":         true, // as Rack reads it
		`{"_method": "put"}`:             true, // as Laravel reads it
		`name="[_method]"`:               true,
		"name=\"_method\x00x\"":          true, // as PHP reads it
		"name=\"\\_\\met\\hod\"":         true,
		"name=" + spaces + "_method\r\n": true,
		strings.Repeat("[", 300) + "_method" + strings.Repeat("]", 300) + "=put":         true,
		`{"\u005F\u006d\u0065\u0074\u0068\u006f\u0064"` + spaces + ": 1}":                true,
		"pay_method=card&method=x&a=b_method&b=%26_method%3Dx&_methods=1&_metho=d":       false,
		`{"payment_method": "a", "b": "%22_method", "x-_method": 1, "_method_": 2}`:      false,
		"name=\"payment_method\"\r\n\r\nobject.method(), object[method], the method\r\n": false,
		"a=\\é\\\xff\\\\%&b=\\u00e9\\u00%f":                                              false,
	} {
		for piece := 1; piece <= len(body); piece++ {
			text, err := io.ReadAll(&searchedBody{ReadCloser: io.NopCloser(&cutUp{body, piece}), seam: []byte("&")})
			if has != (err != nil) || !has && string(text) != body {
				t.Fatalf("%q in pieces of %d: read %q, error %v, want an error: %v", body, piece, text, err, has)
			}
		}
	}
}

// The field is found in pieces where it is found in the whole.
func FuzzFieldInPiecesOfABody(f *testing.F) {
	for _, body := range []string{"a=1&_method=put", `{"\u005Fmethod":1}`, "%5F%6Dethod=", "\\é\\_method=", "\\\xff%"} {
		f.Add(body, uint8(1))
	}
	f.Fuzz(func(t *testing.T, body string, piece uint8) {
		_, err := io.ReadAll(&searchedBody{ReadCloser: io.NopCloser(&cutUp{body, int(piece) + 1}), seam: []byte("&")})
		if hasMethodField([]byte("&"+body)) && err == nil {
			t.Errorf("%q: not found in pieces of %d", body, int(piece)+1)
		}
	})
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
