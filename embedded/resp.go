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
	"strings"
)

// Limits of one command, those of Redis.
const (
	maxWords = 1 << 20
	maxWord  = 512 << 20 // bytes
)

// errSyntax is a reader's error for bytes that are no command.
var errSyntax = errors.New("not a Redis command")

// appendCommand writes a command as an array of bulk strings, the only form that reader takes.
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

// reader reads commands, from a client or from a file, as appendCommand writes them.
type reader struct {
	from   *bufio.Reader
	offset int64  // bytes read
	secret string // of the log that is read, in the seals of its groups
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

// A group of commands in a file is whole when its seal follows: an ECHO, so that a Redis that is
// sent the file takes it, of the commands' checksum. The seals of a log have a secret in them that
// its head names, so that no value can hold one. A snapshot's last group has no commands, and its
// seal names the last log of which the snapshot holds everything; one of format 1 does not.
const (
	sealCommand = "ECHO"
	sealGroup   = "coatcheck group "
	sealEnd     = "coatcheck end "
	logHead     = "coatcheck log "
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func appendSeal(to []byte, secret string, group []byte) []byte {
	return appendCommand(to, sealCommand, sealText(secret, crc32.Checksum(group, castagnoli)))
}

func sealText(secret string, sum uint32) string {
	return fmt.Sprintf("%s%s%08x", sealGroup, secret, sum)
}

func appendEnd(to []byte, logs int) []byte {
	return appendCommand(to, sealCommand, endText(strconv.Itoa(logs)))
}

func endText(logs string) string {
	return fmt.Sprintf("%s%08x %s", sealEnd, crc32.Checksum([]byte(logs), castagnoli), logs)
}

// endFormat1 is the text of a snapshot's last seal in format 1.
const endFormat1 = sealEnd + "00000000"

// logHeadOf is what begins a log whose seals have a secret of 32 hex digits.
func logHeadOf(secret string) []byte {
	return appendCommand(nil, sealCommand, logHead+secret)
}

var head = regexp.MustCompile(`^\*2\r\n\$4\r\nECHO\r\n\$46\r\ncoatcheck log [0-9a-f]{32}\r\n`)

// logHead reads the head of a log, and keeps its secret. A log of format 1 has none. torn means
// that the file holds nothing but a part of a head: no group can have been written.
func (r *reader) logHead() (torn bool, err error) {
	size := len(logHeadOf(zeroSecret))
	begin, err := r.from.Peek(size)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	if head.Match(begin) {
		words, err := r.command()
		r.secret = strings.TrimPrefix(words[1], logHead)
		return false, err
	}
	begin = bytes.TrimRight(begin, "\x00")
	fixed := bytes.TrimSuffix(logHeadOf(zeroSecret), []byte(zeroSecret+"\r\n"))
	part := begin[:min(len(begin), len(fixed))]
	return len(begin) < size && bytes.HasPrefix(fixed, part), nil
}

const zeroSecret = "00000000000000000000000000000000"

// ending is the content of a group's seal.
type ending struct {
	last bool // of a snapshot
	logs int  // the number of the newest log that the snapshot holds all of; 0 = of none
}

// group reads the commands up to the next seal. The bytes counted by offset are then those up to
// the end of the seal. It returns io.EOF only where a group may end.
func (r *reader) group() (commands [][]string, end ending, err error) {
	var sum uint32
	var again []byte
	for {
		words, err := r.command()
		if errors.Is(err, io.EOF) && len(commands) > 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, ending{}, err
		}
		if words[0] == sealCommand {
			end, err = r.check(words, sum, len(commands))
			return commands, end, err
		}
		commands = append(commands, words)
		again = appendCommand(again[:0], words...)
		sum = crc32.Update(sum, castagnoli, again)
	}
}

// check reads a seal after a number of commands with a checksum.
func (r *reader) check(words []string, sum uint32, commands int) (ending, error) {
	text := strings.Join(words[1:], " ")
	if len(words) == 2 && text == sealText(r.secret, sum) {
		return ending{}, nil
	}
	if commands == 0 && text == endFormat1 {
		return ending{last: true}, nil
	}
	if said, isEnd := strings.CutPrefix(text, sealEnd); commands == 0 && isEnd {
		_, said, _ = strings.Cut(said, " ")
		if logs, err := strconv.Atoi(said); err == nil && text == endText(said) {
			return ending{last: true, logs: logs}, nil
		}
	}
	return ending{}, fmt.Errorf("%w: the checksum before byte %d does not match", errSyntax, r.offset)
}

// seal is a whole seal of a log with a secret, anywhere in it.
func seal(secret string) *regexp.Regexp {
	return regexp.MustCompile(`\*2\r\n\$4\r\nECHO\r\n\$\d+\r\n` + sealGroup + secret + `[0-9a-f]{8}\r\n`)
}

// sector is the size in bytes that a disk writes as a whole.
const sector = 512

// tornOff reports whether data, after an offset in a log, is a group that a crash cut off: its
// begin, with zeros where the disk did not write. Its end may be written and an earlier part not,
// but then the zeros fill whole sectors. A group that another follows was not the last.
func tornOff(data []byte, offset int64, secret string) bool {
	data = bytes.TrimRight(data, "\x00")
	seals := seal(secret).FindAllIndex(data, 2)
	if len(seals) > 0 && seals[0][1] < len(data) {
		return false
	}
	in := newReader(bytes.NewReader(data))
	in.secret = secret
	_, _, err := in.group()
	cutOff := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	return cutOff && len(seals) == 0 || hasHole(data, offset)
}

// hasHole reports whether zeros fill a sector's part of data, also of one that begins before it.
func hasHole(data []byte, offset int64) bool {
	for len(data) > 0 {
		part := data[:min(len(data), int(sector-offset%sector))]
		if len(bytes.Trim(part, "\x00")) == 0 {
			return true
		}
		data, offset = data[len(part):], offset+int64(len(part))
	}
	return false
}
