package embedded

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// Limits of one command, those of Redis.
const (
	maxWords = 1 << 20
	maxWord  = 512 << 20 // bytes
)

// errSyntax is a reader's error for bytes that are no command.
var errSyntax = errors.New("not a Redis command")

// reader reads commands of a client: arrays of bulk strings.
type reader struct {
	from   *bufio.Reader
	offset int64 // bytes read
}

func newReader(from io.Reader) *reader { return &reader{from: bufio.NewReader(from)} }

// command reads one command, of at least one word. It returns io.EOF at the end,
// io.ErrUnexpectedEOF inside a command, and errSyntax.
func (r *reader) command() ([]string, error) {
	if _, err := r.from.Peek(1); err != nil {
		return nil, err
	}
	n, err := r.head('*', 1, maxWords)
	if err != nil {
		return nil, err
	}
	words := make([]string, 0, min(n, 64))
	for range n {
		word, err := r.word()
		if err != nil {
			return nil, err
		}
		words = append(words, word)
	}
	return words, nil
}

func (r *reader) word() (string, error) {
	n, err := r.head('$', 0, maxWord)
	if err != nil {
		return "", err
	}
	word := make([]byte, 0, min(n, 4096))
	for len(word) < n { // grows with what is there, not with what is announced
		chunk := min(n-len(word), max(4096, len(word)))
		start := len(word)
		word = append(word, make([]byte, chunk)...)
		got, err := io.ReadFull(r.from, word[start:])
		r.offset += int64(got)
		if err != nil {
			return "", unexpected(err)
		}
	}
	return string(word), errors.Join(r.expect('\r'), r.expect('\n'))
}

// head reads a line of kind and a number without leading zeros.
func (r *reader) head(kind byte, least, most int) (int, error) {
	if err := r.expect(kind); err != nil {
		return 0, err
	}
	n, digits := 0, 0
	for {
		b, err := r.byte()
		switch {
		case err != nil:
			return 0, err
		case b == '\r' && digits > 0 && n >= least:
			return n, r.expect('\n')
		case b < '0' || b > '9' || digits > 0 && n == 0:
			return 0, r.wrong(b)
		}
		n, digits = n*10+int(b-'0'), digits+1
		if n > most {
			return 0, r.wrong(b)
		}
	}
}

func (r *reader) expect(want byte) error {
	b, err := r.byte()
	if err == nil && b != want {
		err = r.wrong(b)
	}
	return err
}

func (r *reader) byte() (byte, error) {
	b, err := r.from.ReadByte()
	if err != nil {
		return 0, unexpected(err)
	}
	r.offset++
	return b, nil
}

func (r *reader) wrong(b byte) error {
	return fmt.Errorf("%w: %q at byte %d", errSyntax, b, r.offset-1)
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
