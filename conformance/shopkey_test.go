package main

import (
	"net/http"
	"regexp"
	"strings"
)

// operation finds out which operation a request belongs to. A status says why it is refused.
func (s *shop) operation(r *http.Request) (name string, unguarded bool, status int) {
	who := r.Header.Get("Authorization")
	tokens, keys := r.Header["Idempotency-Token"], r.Header["Idempotency-Key"]
	if s.is(firstOfTwo) && len(keys) > 1 {
		keys = keys[:1]
	}
	if len(tokens) == 1 && !s.is(tokenRefused) {
		keys = nil
	}
	switch {
	case len(tokens)+len(keys) == 0:
		return "", true, map[bool]int{false: http.StatusBadRequest}[s.is(missingPasses)]
	case len(tokens)+len(keys) > 1:
		return "", false, http.StatusBadRequest
	case len(tokens) == 1:
		return s.token(tokens[0], who)
	}
	key, ok := s.key(keys[0])
	switch {
	case !ok:
		return "", false, http.StatusBadRequest
	case len(key) > 255 && s.is(longUnguarded):
		return "", true, 0
	case len(key) > 255:
		return "", false, http.StatusBadRequest
	case s.is(globalKeys):
		who = ""
	case s.is(caseFolded):
		key = strings.ToLower(key)
	}
	return who + "\x00" + key, false, 0
}

func (s *shop) token(token, who string) (name string, unguarded bool, status int) {
	s.mu.Lock()
	owner, known := s.issued[token]
	s.mu.Unlock()
	if known && owner != who && !s.is(tokenOfAnybody) {
		known = false
	}
	if !known && !s.is(madeUpTokens) {
		return "", false, http.StatusGone
	}
	return "token\x00" + token, false, 0
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9._~-]+$`)

// key reads a key as strictly as the shop's fault lets it.
func (s *shop) key(text string) (key string, ok bool) {
	switch {
	case bareKey.MatchString(text):
		return text, !s.is(refusesBare)
	case s.is(acceptsEmpty) && text == "", s.is(acceptsEmptyString) && text == `""`, s.is(acceptsNonASCII) && strings.Contains(text, "é"):
		return "lenient", true
	case !strings.HasPrefix(text, `"`):
		return "", false
	}
	key, rest, ok := s.stringItem(text[1:])
	switch {
	case !ok || key == "":
		return "", false
	case rest == "", s.is(acceptsList) && rest[0] == ',', s.is(acceptsParameters) && rest[0] == ';', s.is(acceptsTrailing) && rest[0] == ' ':
	default:
		if s.is(burnsMalformed) {
			s.claim("\x00"+key, "")
		}
		return "", false
	}
	if s.is(keepsQuotes) {
		key = text
	}
	return key, true
}

// stringItem reads an RFC 8941 string whose first quote has been read.
func (s *shop) stringItem(text string) (key, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), strings.TrimPrefix(text[i+1:], ""), true
		case c == '\\' && s.is(cutsAtEscape):
			return b.String(), "", true
		case c == '\\' && s.is(refusesEscapes):
			return "", "", false
		case c == '\\':
			i++
			if i == len(text) || text[i] != '"' && text[i] != '\\' && !s.is(acceptsBadEscape) {
				return "", "", false
			}
			b.WriteByte(text[i])
		case c < ' ' || c > '~':
			return "", "", false
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), "", s.is(acceptsUnterminated)
}
