// Package names is the rule for names: of counters, locks, pools, tags and holders. It is the same
// for the library, the service, its clients and the commands.
package names

import "strconv"

// Max is how many characters a name has at most.
const Max = 200

// Rule is the rule for people.
const Rule = "1 to 200 characters of A–Z a–z 0–9 . _ : ~ @ -"

// Valid reports whether a text keeps the rule. It is safe for concurrent use and does not allocate.
func Valid(text string) bool {
	for i := range len(text) {
		if !inNames[text[i]] {
			return false
		}
	}
	return text != "" && len(text) <= Max
}

// InPath reports whether a valid name can be a part of a URL's path: . and .. mean something else.
func InPath(text string) bool { return Valid(text) && text != "." && text != ".." }

var inNames = func() (allowed [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:~@-") {
		allowed[c] = true
	}
	return allowed
}()

// Printable shortens a foreign text, and escapes what is not plain, before an answer or a fault
// quotes it.
func Printable(text string) string {
	if len(text) > 40 {
		text = text[:40] + "…"
	}
	quoted := strconv.QuoteToASCII(text)
	return quoted[1 : len(quoted)-1]
}
