package names

import "strings"

// Form is a rule for the bytes and the length of texts. It matches as a regular expression such as
// ^[a-z]{1,512}$ does, which would take a millisecond to compile at a program's start. A Form is
// immutable and safe for concurrent use.
type Form struct {
	chars       [256]bool
	least, most int
}

// The forms that several packages know.
var (
	Token = NewForm("A-Za-z0-9._~-", 1, 255)
	// Digested is what Digest returns, such as an operation's name.
	Digested = NewForm("A-Za-z0-9_-", 32, 32)
	Header   = NewForm("A-Za-z0-9!#$%&'*+.^_`|~-", 1, 100) // a header's name
)

// NewForm returns the form of texts with least to most bytes out of chars, in which a-z is a range.
// A dash that is meant is the last.
func NewForm(chars string, least, most int) *Form {
	f := &Form{least: least, most: most}
	for chars != "" {
		first, last := chars[0], chars[0]
		if len(chars) > 2 && strings.HasPrefix(chars[1:], "-") {
			last, chars = chars[2], chars[2:]
		}
		chars = chars[1:]
		for c := int(first); c <= int(last); c++ {
			f.chars[c] = true
		}
	}
	return f
}

// MatchString reports whether a text is of the form. It allocates nothing.
func (f *Form) MatchString(text string) bool {
	for i := range len(text) {
		if !f.chars[text[i]] {
			return false
		}
	}
	return len(text) >= f.least && len(text) <= f.most
}
