package embedded

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Limits of one command, those of Redis.
const (
	maxWords = 1 << 20
	maxWord  = 512 << 20 // bytes
)

// errSyntax is the error for bytes that are no command.
var errSyntax = errors.New("not a Redis command")

// readCommand reads a client's command: an array of bulk strings, of at least one.
func readCommand(in *bufio.Reader) ([]string, error) {
	n, err := readHead(in, '*', 1, maxWords)
	if err != nil {
		return nil, err
	}
	words := make([]string, 0, min(n, 64))
	var word bytes.Buffer // grows with what is there, not with what is announced
	for range n {
		size, err := readHead(in, '$', 0, maxWord)
		if err != nil {
			return nil, err
		}
		word.Reset()
		if _, err := io.CopyN(&word, in, int64(size)+int64(len("\r\n"))); err != nil {
			return nil, err
		}
		words = append(words, string(word.Bytes()[:size]))
	}
	return words, nil
}

// readHead reads a line of a kind and a number.
func readHead(in *bufio.Reader, kind byte, least, most int) (int, error) {
	first, err := in.ReadByte()
	if err != nil {
		return 0, err
	}
	if first != kind {
		return 0, fmt.Errorf("%w: %q in place of %q", errSyntax, first, kind)
	}
	line, err := in.ReadSlice('\n')
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return 0, err
	}
	n, wrong := strconv.Atoi(strings.TrimSpace(string(line)))
	if wrong != nil || n < least || n > most {
		return 0, fmt.Errorf("%w: %.40q is no length", errSyntax, line)
	}
	return n, nil
}
