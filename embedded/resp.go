package embedded

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"regexp"
	"strconv"
)

// Limits of one command, those of Redis.
const (
	maxWords = 1 << 20
	maxWord  = 512 << 20 // bytes
)

// errSyntax is what a reader answers to bytes that are no command.
var errSyntax = errors.New("not a Redis command")

// appendCommand writes a command as an array of bulk strings, the only form that a reader takes.
func appendCommand(to []byte, words ...string) []byte {
	to = appendHead(to, '*', len(words))
	for _, word := range words {
		to = appendHead(to, '$', len(word))
		to = append(to, word...)
		to = append(to, '\r', '\n')
	}
	return to
}

func appendHead(to []byte, kind byte, n int) []byte {
	to = append(to, kind)
	to = strconv.AppendInt(to, int64(n), 10)
	return append(to, '\r', '\n')
}

// reader reads commands, from a client or from a file. It takes nothing but what appendCommand writes.
type reader struct {
	from   *bufio.Reader
	offset int64 // bytes read
}

func newReader(from io.Reader) *reader { return &reader{from: bufio.NewReader(from)} }

// command reads one command, of at least one word. It answers io.EOF at the end, io.ErrUnexpectedEOF inside a command, and errSyntax.
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

// A group of commands in a file is whole when its seal follows: an ECHO, so that a Redis that is sent the file takes it, of the commands' checksum. The
// last seal of a snapshot says that it is the last.
const (
	sealCommand = "ECHO"
	sealGroup   = "coatcheck group "
	sealEnd     = "coatcheck end "
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendSeal(to []byte, kind string, group []byte) []byte {
	return appendCommand(to, sealCommand, sealText(kind, crc32.Checksum(group, castagnoli)))
}

func sealText(kind string, sum uint32) string { return fmt.Sprintf("%s%08x", kind, sum) }

// group reads the commands up to the next seal, and tells whether that is a snapshot's last. The bytes counted by offset are then those up to the end of the
// seal. It answers io.EOF only where a group may end.
func (r *reader) group() (commands [][]string, last bool, err error) {
	var sum uint32
	var again []byte
	for {
		words, err := r.command()
		if errors.Is(err, io.EOF) && len(commands) > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, false, err
		}
		if words[0] == sealCommand {
			return commands, len(words) == 2 && words[1] == sealText(sealEnd, sum), r.check(words, sum)
		}
		commands = append(commands, words)
		again = appendCommand(again[:0], words...)
		sum = crc32.Update(sum, castagnoli, again)
	}
}

func (r *reader) check(words []string, sum uint32) error {
	if len(words) == 2 && (words[1] == sealText(sealGroup, sum) || words[1] == sealText(sealEnd, sum)) {
		return nil
	}
	return fmt.Errorf("%w: the checksum before byte %d does not match", errSyntax, r.offset)
}

// seal is a whole seal, anywhere in a file.
var seal = regexp.MustCompile(`\*2\r\n\$4\r\nECHO\r\n\$\d+\r\ncoatcheck (group|end) [0-9a-f]{8}\r\n`)

// tornOff tells whether data is what a crash leaves of one group: its begin, and perhaps zeros that the disk was to write over.
func tornOff(data []byte) bool {
	_, _, err := newReader(bytes.NewReader(bytes.TrimRight(data, "\x00"))).group()
	return (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) && !seal.Match(data)
}
