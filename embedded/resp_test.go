package embedded

import (
	"bytes"
	"errors"
	"io"
	"reflect"
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

func TestAGroupCountsOnlyWithItsSeal(t *testing.T) {
	one := appendCommand(appendCommand(nil, "SET", "a", "\x00\r\n\xff"), "DEL", "b")
	whole := appendSeal(bytes.Clone(one), "", one)
	commands, end, err := newReader(bytes.NewReader(whole)).group()
	if err != nil || end.last || !reflect.DeepEqual(commands, [][]string{{"SET", "a", "\x00\r\n\xff"}, {"DEL", "b"}}) {
		t.Fatal(commands, end, err)
	}
	for i := range whole {
		if _, _, err := newReader(bytes.NewReader(whole[:i])).group(); err == nil {
			t.Errorf("the first %d bytes pass for the group", i)
		}
		if !tornOff(whole[:i], 0, "") || !tornOff(append(bytes.Clone(whole[:i]), make([]byte, 4096)...), 0, "") {
			t.Errorf("the first %d bytes do not pass for a group that was cut off", i)
		}
		for bit := range 8 {
			damaged := bytes.Clone(whole)
			damaged[i] ^= 1 << bit
			if got, _, err := newReader(bytes.NewReader(damaged)).group(); err == nil && !reflect.DeepEqual(got, commands) {
				t.Errorf("bit %d of byte %d damaged passes as %q", bit, i, got)
			}
		}
	}
	if tornOff(append(whole[:20:20], whole...), 0, "") {
		t.Error("damage before a whole group passes for a group that was cut off")
	}
}

// What a reader takes is, byte for byte, what the writer makes of it, whatever the input.
func FuzzReader(f *testing.F) {
	one := appendCommand(appendCommand(nil, "SET", "a", "\x00\r\n\xff"), "PEXPIREAT", "a", "1")
	f.Add(appendSeal(bytes.Clone(one), "", one))
	f.Add(appendEnd(nil, 7))
	f.Add(appendCommand(nil, sealCommand, endFormat1))
	f.Add(one)
	f.Add([]byte("*1\r\n$536870912\r\nx"))
	f.Add([]byte("*1048576\r\n$0\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		in := newReader(bytes.NewReader(data))
		for {
			start := in.offset
			commands, end, err := in.group()
			if err != nil {
				if errors.Is(err, io.EOF) && int(in.offset) != len(data) {
					t.Fatalf("stopped at byte %d of %d without an error", in.offset, len(data))
				}
				return
			}
			var again []byte
			for _, words := range commands {
				again = appendCommand(again, words...)
			}
			switch taken := data[start:in.offset]; {
			case end.last && bytes.Contains(taken, []byte(endFormat1+"\r")):
				again = appendCommand(again, sealCommand, endFormat1)
			case end.last:
				again = appendEnd(again, end.logs)
			default:
				again = appendSeal(again, "", bytes.Clone(again))
			}
			if !bytes.Equal(again, data[start:in.offset]) {
				t.Fatalf("took %q, which is written %q", data[start:in.offset], again)
			}
		}
	})
}
