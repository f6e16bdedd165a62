package muxpattern

import (
	"fmt"
	"regexp"
	"strings"
)

// invisible matches white space and characters without width that no request has as they stand.
var invisible = regexp.MustCompile(`[\x00-\x08\x0a-\x1f\x{7f}-\x{a0}\p{Cf}\p{Zl}\p{Zp}\x{1680}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}` +
	`\x{34f}\x{115f}\x{1160}\x{17b4}\x{17b5}\x{180b}-\x{180f}\x{2800}\x{3164}\x{fe00}-\x{fe0f}\x{ffa0}\x{e0000}-\x{e0fff}]`)

// special are the characters that mean something in a pattern, or in one of another router.
const special = `/.{}<>[]*?#:%$\|`

// lookalikes are characters that look like one of a pattern's own, by that one. Those of its full
// width are computed. Letters and marks of a script are none: a path may have them as text.
var lookalikes = map[string]string{
	"/": "\u1735\u2041\u2044\u2215\u2571\u27cb\u29f6\u29f8\u2afd\u3033",
	".": "\u2024\ufe52\u0702",
	"{": "\u2774\u2983\ufe5b\ufe37\U0001d114",
	"}": "\u2775\u2984\ufe5c\ufe38",
	":": "\u2236\ua789\ufe55",
	"*": "\u2217\u204e\u22c6\ufe61",
	"?": "\ufe56",
	"<": "\u2039\u27e8\u3008",
	">": "\u203a\u27e9\u3009",
}

// plain is the character of a pattern that another one looks like; "" if it looks like none.
func plain(char rune) string {
	const fullWidth = 0xfee0
	if narrow := char - fullWidth; narrow > ' ' && narrow < 0x7f && strings.ContainsRune(special, narrow) {
		return string(narrow)
	}
	for meant, like := range lookalikes {
		if strings.ContainsRune(like, char) {
			return meant
		}
	}
	return ""
}

// braced matches a wildcard with a space beside its name.
var braced = regexp.MustCompile(`\{[ \t]*([^{}/ \t]*)[ \t]*\}`)

// ofCharacters finds characters that a pattern has only by mistake.
func ofCharacters(pattern string) finding {
	if hidden := invisible.FindString(pattern); hidden != "" {
		return finding{what: fmt.Sprintf("it has the character %U, which is not to be seen: write it anew, with plain spaces", []rune(hidden)[0])}
	}
	for _, char := range pattern {
		if like := plain(char); like != "" {
			return finding{
				what:   fmt.Sprintf("it has the character %U, which only looks like %q", char, like),
				meant:  strings.ReplaceAll(pattern, string(char), like),
				isText: true,
			}
		}
	}
	if trimmed := strings.Trim(pattern, " \t"); trimmed != pattern {
		return finding{what: "it begins or ends with a space", meant: trimmed}
	}
	if tight := braced.ReplaceAllString(pattern, "{$1}"); tight != pattern {
		return finding{what: "a wildcard has no space", meant: tight}
	}
	return finding{}
}
