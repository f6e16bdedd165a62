package idempotency

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/coatcheck/coatcheck/redisstore"
)

// The form of a stored answer: words, each followed by a space, texts as netstrings (length:text,),
// then the body unchanged. The words are the version, the status, 1 if the body was not kept, the
// number of headers; each header is its name, the number of its values, and those. An encrypted one
// is the version 2, the key's id, and the encrypted answer.
const (
	plainVersion  = "1"
	sealedVersion = "2"
)

func (a Answer) encode() []byte {
	text := make([]byte, 0, 32+16*len(a.Header)+a.size())
	text = append(text, plainVersion+" "...)
	text = appendNumber(text, a.Status)
	text = appendNumber(text, bit(a.NotKept))
	text = appendNumber(text, len(a.Header))
	for name, values := range a.Header {
		text = appendText(text, name)
		text = appendNumber(text, len(values))
		for _, value := range values {
			text = appendText(text, value)
		}
	}
	return append(text, a.Body...)
}

func appendNumber(to []byte, n int) []byte { return append(strconv.AppendInt(to, int64(n), 10), ' ') }

func appendText(to []byte, text string) []byte {
	to = append(strconv.AppendInt(to, int64(len(text)), 10), ':')
	return append(append(to, text...), ',')
}

func bit(is bool) int {
	if is {
		return 1
	}
	return 0
}

// decodeAnswer reads an answer as encode writes it. Any other form is an error: nothing is replayed
// and nothing runs.
func decodeAnswer(stored string) (Answer, error) {
	from := storedText{rest: stored}
	if from.word() != plainVersion {
		return Answer{}, errNotReadable
	}
	answer := Answer{Status: from.number(maxStatus), NotKept: from.number(1) == 1}
	var header http.Header
	for range from.number(len(from.rest)) {
		if header == nil {
			header = http.Header{}
		}
		name := from.text()
		values := make([]string, from.number(len(from.rest)))
		for i := range values {
			values[i] = from.text()
		}
		header[name] = values
	}
	if from.bad || answer.Status < http.StatusOK {
		return Answer{}, errNotReadable
	}
	removeUnsafe(header)
	answer.Header, answer.Body = header, []byte(from.rest)
	return answer, nil
}

var errNotReadable = fmt.Errorf("%w: the stored answer cannot be read", redisstore.ErrUnavailable)

// storedText is read from its front. An unreadable part makes it bad, and empty from then on.
type storedText struct {
	rest string
	bad  bool
}

func (s *storedText) until(end byte) string {
	at := strings.IndexByte(s.rest, end)
	if at < 0 {
		return s.fail()
	}
	word := s.rest[:at]
	s.rest = s.rest[at+1:]
	return word
}

func (s *storedText) fail() string {
	s.rest, s.bad = "", true
	return ""
}

func (s *storedText) word() string { return s.until(' ') }

// number reads a number from 0 to most; 0 if there is none.
func (s *storedText) number(most int) int { return s.parse(s.word(), most) }

func (s *storedText) parse(digits string, most int) int {
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || n > uint64(most) { //nolint:gosec // most is the length of something, or a constant
		s.fail()
		return 0
	}
	return int(n)
}

func (s *storedText) text() string {
	length := s.parse(s.until(':'), len(s.rest))
	if length >= len(s.rest) || s.rest[length] != ',' {
		return s.fail()
	}
	text := s.rest[:length]
	s.rest = s.rest[length+1:]
	return text
}
