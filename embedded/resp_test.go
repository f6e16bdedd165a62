package embedded

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestReaderTakesCommandsOnly(t *testing.T) {
	for text, want := range map[string]error{
		"":                                      io.EOF,
		"*1\r\n$4\r\nPING\r\n":                  nil,
		"*2\r\n$1\r\na\r\n$2\r\n\r\n\r\n":       nil,
		"*1\r\n$4\r\nPI":                        io.EOF,
		"*1":                                    io.EOF,
		"*1\r\n$99999999\r\nx":                  io.EOF,
		"PING\r\n":                              errSyntax,
		"\n":                                    errSyntax,
		"*0\r\n":                                errSyntax,
		"*-1\r\n":                               errSyntax,
		"*1\r\n:4\r\n":                          errSyntax,
		"*1\r\n$-1\r\n":                         errSyntax,
		"*1\r\n$999999999999999999999999\r\n\r": errSyntax,
		"*99999999\r\n":                         errSyntax,
		"*" + strings.Repeat("1", 9999):         errSyntax,
	} {
		in := bufio.NewReader(strings.NewReader(text))
		_, err := readCommand(in)
		if !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("reading %.60q: got %v, want %v", text, err, want)
		}
	}
}

// What clients write is read word for word, and nothing else ends in a panic.
func FuzzReader(f *testing.F) {
	f.Add("PING", "a\x00\r\n\xff", "*1\r\n$536870912\r\nx")
	f.Add("", "", "*1048576\r\n$0\r\n\r\n")
	f.Fuzz(func(t *testing.T, first, second, after string) {
		want := []string{first, second}
		in := bufio.NewReader(strings.NewReader(asWritten(want...) + after))
		if got, err := readCommand(in); err != nil || !slices.Equal(got, want) {
			t.Fatalf("reading a command: got %q and %v, want %q", got, err, want)
		}
		for {
			if _, err := readCommand(in); err != nil {
				return
			}
		}
	})
}

// asWritten is a command as clients write it.
func asWritten(words ...string) string {
	text := fmt.Sprintf("*%d\r\n", len(words))
	for _, word := range words {
		text += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
	}
	return text
}
