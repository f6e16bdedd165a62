package engines

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// command writes a command: an array of bulk strings.
func command(words []string) []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(&text, "$%d\r\n%s\r\n", len(word), word)
	}
	return text.Bytes()
}

// bulk writes a bulk string, or a verbatim one.
func bulk(kind byte, text string) []byte {
	return fmt.Appendf(nil, "%c%d\r\n%s\r\n", kind, len(text), text)
}

// edited changes the text of an answer that is a bulk string or a verbatim one.
func edited(answer []byte, edit func(string) string) []byte {
	head, text, _ := strings.Cut(string(answer), "\r\n")
	text = strings.TrimSuffix(text, "\r\n")
	switch head[0] {
	case '$':
		return bulk('$', edit(text))
	case '=':
		return bulk('=', text[:4]+edit(text[4:]))
	}
	return answer
}

// readReply reads one reply of RESP 2 or 3, with all that is in it.
func readReply(in *bufio.Reader) ([]byte, error) {
	head, err := in.ReadBytes('\n')
	if err != nil {
		return nil, err
	}
	size, more := 0, 0
	switch text := strings.TrimSpace(string(head[1:])); head[0] {
	case '$', '=', '!':
		size, err = strconv.Atoi(text)
		size += len("\r\n")
	case '*', '~', '>':
		more, err = strconv.Atoi(text)
	case '%':
		more, err = strconv.Atoi(text)
		more *= 2
	case '|': // beside the reply itself
		more, err = strconv.Atoi(text)
		more = 2*more + 1
	}
	if err != nil {
		return nil, fmt.Errorf("no reply of Redis: %q: %w", head, err)
	}
	if size >= len("\r\n") { // -1 is null
		from := len(head)
		head = append(head, make([]byte, size)...)
		if _, err := io.ReadFull(in, head[from:]); err != nil {
			return nil, err
		}
	}
	for range more {
		part, err := readReply(in)
		if err != nil {
			return nil, err
		}
		head = append(head, part...)
	}
	return head, nil
}
