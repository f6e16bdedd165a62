package idempotency

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/coatcheck/coatcheck/internal/lazyregexp"
	"github.com/coatcheck/coatcheck/internal/names"
)

// CookiePrincipal returns a function that names callers by the values of cookies, for
// [Config].Principal or [Route].Principal. They have to stay the same while a user is signed in. A
// request without one of them, or with one that services read in several ways, has no caller:
// ErrUnauthorized.
func CookiePrincipal(cookies ...string) func(*http.Request) (string, error) {
	var forms []cookieForm
	for _, name := range cookies {
		forms = append(forms, formOf(name))
	}
	return func(r *http.Request) (string, error) {
		parts := []string{"cookie"}
		for i, name := range cookies {
			value, isPlain := forms[i].value(r.Header.Values("Cookie"))
			if !isPlain {
				return "", Unauthorized("Cookie", "the header Cookie belongs here, once, with the cookie "+name+" in it once, and as "+name+
					"=value: no quotes, spaces, commas or other characters that services read in several ways. Nothing was done")
			}
			if value == "" {
				return "", Unauthorized("Cookie", "the cookie "+name+" belongs here")
			}
			parts = append(parts, name, value)
		}
		return names.Digest(parts...), nil
	}
}

// cookieForm finds a cookie. Node and Rack decode a name; PHP takes spaces, dots and brackets in it
// for an underscore, and brackets at its end for a list; ASP.NET ignores case; Python and older
// servers end a cookie at a space or a comma, but not within quotes.
type cookieForm struct {
	plain  *regexp.Regexp // the cookie as all read it
	likely *regexp.Regexp // the name as some may read it
}

func formOf(name string) cookieForm {
	likely := regexp.MustCompile(`[^\w-]`).ReplaceAllString(strings.ReplaceAll(name, "_", "."), `[_. +\[]`)
	return cookieForm{
		plain:  regexp.MustCompile(`^ ?` + regexp.QuoteMeta(name) + `=([!#-+\--:<-\[\]-~]*)$`),
		likely: regexp.MustCompile(`(?i)(?:^|[;,+"\s])` + likely + `(?:\s*=|[\[\x00]|\s*(?:[;,]|$))`),
	}
}

// value returns the value of the cookie in a request's Cookie headers, "" if it is not there or
// empty. isPlain is false if services may read the header in several ways.
func (f cookieForm) value(headers []string) (value string, isPlain bool) {
	if len(headers) == 0 {
		return "", true
	}
	text, found := headers[0], 0
	for pair := range strings.SplitSeq(text, ";") {
		if strings.Count(pair, `"`)%2 != 0 || strings.Contains(pair, `\"`) {
			return "", false // the text between quotes may go on, or not
		}
		if match := f.plain.FindStringSubmatch(pair); match != nil {
			value, found = match[1], found+1
		}
	}
	return value, len(headers) == 1 && found == len(f.likely.FindAllString(apart.Replace(decodedOnce(text)), -1)) && found <= 1
}

// apart doubles separators, so that each of two neighbours has one.
var apart = strings.NewReplacer(";", ";;", ",", ",,")

// decodedOnce is a text without its percent-encoding, as far as it has one.
func decodedOnce(text string) string {
	return encoded().ReplaceAllStringFunc(text, func(triplet string) string {
		char, _ := url.PathUnescape(triplet) // it matches the expression
		return char
	})
}

var encoded = lazyregexp.New(`%[0-9A-Fa-f]{2}`)
