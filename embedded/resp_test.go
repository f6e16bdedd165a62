package embedded

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
)

func TestReaderTakesOnlyWhatIsWritten(t *testing.T) {
	for text, want := range map[string]error{
		"":                                      io.EOF,
		"*1\r\n$4\r\nPING\r\n":                  nil,
		"*1\r\n$0\r\n\r\n":                      nil,
		"*2\r\n$1\r\na\r\n$2\r\n\r\n\r\n":       nil,
		"*1\r\n$4\r\nPING\r":                    io.ErrUnexpectedEOF,
		"*1\r\n$4\r\nPI":                        io.ErrUnexpectedEOF,
		"*1":                                    io.ErrUnexpectedEOF,
		"*1\r\n$99999999\r\nx":                  io.ErrUnexpectedEOF,
		"PING\r\n":                              errSyntax,
		"*0\r\n":                                errSyntax,
		"*-1\r\n":                               errSyntax,
		"*01\r\n$4\r\nPING\r\n":                 errSyntax,
		"*1\r\n$04\r\nPING\r\n":                 errSyntax,
		"*1\r\n$3\r\nPING\r\n":                  errSyntax,
		"*1\r\n$5\r\nPING\r\n\r\n":              errSyntax,
		"*1\n$4\nPING\n":                        errSyntax,
		"*1\r\n:4\r\n":                          errSyntax,
		"*1\r\n$999999999999999999999999\r\n\r": errSyntax,
		"*99999999\r\n":                         errSyntax,
		"\x00\x00\x00":                          errSyntax,
	} {
		if _, err := newReader(strings.NewReader(text)).command(); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%q: got %v, want %v", text, err, want)
		}
	}
}

// What a reader takes is, byte for byte, a command as clients write it, whatever the input.
func FuzzReader(f *testing.F) {
	f.Add(appendCommand(appendCommand(nil, "SET", "a", "\x00\r\n\xff"), "PEXPIREAT", "a", "1"))
	f.Add([]byte("*1\r\n$536870912\r\nx"))
	f.Add([]byte("*1048576\r\n$0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := newReader(bytes.NewReader(data))
		for {
			start := in.offset
			words, err := in.command()
			if err != nil {
				if errors.Is(err, io.EOF) && int(in.offset) != len(data) {
					t.Fatalf("%q: stopped at byte %d without an error", data, in.offset)
				}
				return
			}
			if again := appendCommand(nil, words...); !bytes.Equal(again, data[start:in.offset]) {
				t.Fatalf("%q: took %q, which is written %q", data, data[start:in.offset], again)
			}
		}
	})
}

// appendCommand writes a command as an array of bulk strings, as clients do.
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
