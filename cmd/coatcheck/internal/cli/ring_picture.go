package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/api"
)

// mark is a slot's character in the picture of a ring.
type mark struct {
	letter  byte
	colour  string // a terminal's
	meaning string
}

// The marks, the most important first: a character for several slots shows their first.
var marks = []mark{
	{'#', "32", "held"},
	{'~', "33", "cooling"},
	{'o', "36", "free, was held"},
	{'.', "2", "free, never held"},
}

// shut is the state of all free slots of a pool in quarantine.
var shut = mark{'x', "31", "quarantined"}

func rankOf(slot api.WorkerSlot) int {
	switch {
	case slot.State == "held":
		return 0
	case slot.State == "cooling":
		return 1
	case slot.Fence != 0:
		return 2
	}
	return 3
}

const (
	perRow   = 64
	mostRows = 64 // of a picture; a larger ring is drawn in blocks
)

// ringPicture draws a ring, with a legend and, if they are few, its holders. Slots beyond those
// that the ring came with were never leased.
func ringPicture(ring api.WorkerRing, colours bool) string {
	perMark := 1
	for ring.Size/perMark > perRow*mostRows {
		perMark *= 2
	}
	ranks := make([]int, (ring.Size+perMark-1)/perMark)
	counts := make([]int, len(marks))
	counts[len(marks)-1] = ring.Size - len(ring.Slots)
	for i := range ranks {
		ranks[i] = len(marks) - 1
	}
	for _, slot := range ring.Slots {
		rank := rankOf(slot)
		counts[rank]++
		ranks[slot.WorkerID/perMark] = min(rank, ranks[slot.WorkerID/perMark])
	}
	shown := append([]mark{}, marks...)
	if ring.QuarantinedMs > 0 {
		shown[2], shown[3] = mark{shut.letter, shut.colour, "quarantined, was held"},
			mark{shut.letter, shut.colour, "quarantined, never held"}
	}
	var picture strings.Builder
	for i, rank := range ranks {
		if i%perRow == 0 {
			fmt.Fprintf(&picture, "%8d  ", i*perMark)
		}
		picture.WriteString(paint(string(shown[rank].letter), shown[rank].colour, colours))
		if i%perRow == perRow-1 || i == len(ranks)-1 {
			picture.WriteByte('\n')
		}
	}
	picture.WriteByte('\n')
	for rank, count := range counts {
		fmt.Fprintf(&picture, "  %s %s: %d", paint(string(shown[rank].letter), shown[rank].colour, colours), shown[rank].meaning, count)
	}
	if perMark > 1 {
		fmt.Fprintf(&picture, "\n  one character is %d worker ids, and shows the first of these that one of them is", perMark)
	}
	return picture.String() + "\n" + holders(ring)
}

func paint(text, colour string, colours bool) string {
	if !colours {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

const mostHolders = 32

func holders(ring api.WorkerRing) string {
	held := slices.DeleteFunc(slices.Clone(ring.Slots), func(slot api.WorkerSlot) bool { return slot.State != "held" })
	if len(held) == 0 {
		return ""
	}
	people := tabular("\nWORKER\tHOLDER\tFENCE\tSINCE\tUNTIL", func(line func(...string)) {
		for _, slot := range held[:min(len(held), mostHolders)] {
			line(strconv.Itoa(slot.WorkerID), cmp.Or(slot.Holder, "-"), strconv.FormatInt(slot.Fence, 10),
				slot.NotBefore.Format(time.RFC3339), slot.NotAfter.Format(time.RFC3339))
		}
	})
	if more := len(held) - mostHolders; more > 0 {
		people += fmt.Sprintf("and %d more; --json lists them all\n", more)
	}
	return people
}

// colourful reports whether a writer is a terminal that may have colours, as no-color.org says.
func colourful(out io.Writer, getenv func(string) string) bool {
	return getenv("NO_COLOR") == "" && isTerminal(out, getenv)
}

// isTerminal reports whether a writer is a terminal that can do more than print.
func isTerminal(out io.Writer, getenv func(string) string) bool {
	file, ok := out.(*os.File)
	if !ok || getenv("TERM") == "dumb" {
		return false
	}
	about, err := file.Stat()
	return err == nil && about.Mode()&os.ModeCharDevice != 0
}
