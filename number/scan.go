package number

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is what a part of a template is.
type kind uint8

const (
	literalPart kind = iota
	valuePart
	datePart
)

// part is a piece of a template or a calendar key.
type part struct {
	kind     kind
	position int     // of its first character in the text, from 1
	literal  string  // of a literal: what it writes
	width    int     // of a value, in digits; 0 = as many as it has
	date     pattern // of a date
}

type fault struct {
	position int // from 1; 0 = with the whole
	says     string
}

func (f *fault) Error() string {
	if f.position == 0 {
		return f.says
	}
	return fmt.Sprintf("position %d: %s", f.position, f.says)
}

func faultAt(position int, format string, args ...any) *fault {
	return &fault{position, fmt.Sprintf(format, args...)}
}

// scan takes a text apart. Literals that touch are one part.
func scan(text string) ([]part, *fault) {
	var parts []part
	for at := 0; at < len(text); {
		next, length, wrong := scanPart(text[at:], at+1)
		if wrong != nil {
			return nil, wrong
		}
		if last := len(parts) - 1; next.kind == literalPart && last >= 0 && parts[last].kind == literalPart {
			parts[last].literal += next.literal
		} else {
			parts = append(parts, next)
		}
		at += length
	}
	return parts, nil
}

// scanPart reads a text's first part, a literal up to where it may end, and returns its length.
func scanPart(text string, position int) (part, int, *fault) {
	if double := text[:min(2, len(text))]; double == "{{" || double == "}}" {
		return part{kind: literalPart, position: position, literal: double[:1]}, 2, nil
	}
	switch text[0] {
	case '{':
		length := strings.IndexByte(text, '}') + 1
		if length == 0 {
			return part{}, 0, faultAt(position, "the brace is not closed; write {{ for a brace as it is")
		}
		next, wrong := placeholder(text[1:length-1], position+1)
		next.position = position
		return next, length, wrong
	case '}':
		return part{}, 0, faultAt(position, "this brace closes nothing; write }} for a brace as it is")
	}
	length := 0
	for length < len(text) && isLiteral(text[length]) {
		length++
	}
	if length == 0 {
		first, _ := utf8.DecodeRuneInString(text)
		return part{}, 0, faultAt(position, "%q cannot be written; text is A–Z a–z 0–9 . _ : ~ @ - / # and space, and {{ or }} for a brace",
			first)
	}
	return part{kind: literalPart, position: position, literal: text[:length]}, length, nil
}

// isName reports whether a character may stand in a counter's name.
func isName(c byte) bool {
	return c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("._:~@-", c) >= 0
}

func isLiteral(c byte) bool { return isName(c) || c == '/' || c == '#' || c == ' ' }

// placeholder reads what stands between two braces. The position is that of its first character.
func placeholder(body string, position int) (part, *fault) {
	if body == "n" {
		return part{kind: valuePart}, nil
	}
	if digits, ok := strings.CutPrefix(body, "n:"); ok {
		width, err := strconv.Atoi(digits)
		if err != nil || width < 1 || width > MaxWidth || strconv.Itoa(width) != digits {
			return part{}, faultAt(position+2, "%.20q is no width; write 1 to %d, as in {n:6} for 000042, or {n} for 42", digits, MaxWidth)
		}
		return part{kind: valuePart, width: width}, nil
	}
	pattern, wrong := parsePattern(body, position)
	return part{kind: datePart, date: pattern}, wrong
}
