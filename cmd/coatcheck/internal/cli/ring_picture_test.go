package cli

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func ringWith(size int, states map[int]string) api.WorkerRing {
	ring := api.WorkerRing{WorkerPool: api.WorkerPool{Size: size}}
	last := 0
	for id := range states {
		last = max(last, id)
	}
	for id := range last + 1 {
		slot := api.WorkerSlot{WorkerID: id, State: "free"}
		if state := states[id]; state != "" {
			slot.State, slot.Fence, slot.Holder = state, 7, "web"
			slot.NotBefore = api.At(time.Unix(0, 0).UTC())
			slot.NotAfter = api.At(slot.NotBefore.Add(time.Minute))
		}
		ring.Slots = append(ring.Slots, slot)
	}
	return ring
}

func TestPictureHasACharacterASlot(t *testing.T) {
	picture := ringPicture(ringWith(128, map[int]string{0: "held", 2: "cooling", 3: "free", 65: "held"}), false)
	rows := strings.Join(strings.SplitN(picture, "\n", 3)[:2], "\n")
	expect.Equal(t, "first rows of the picture", rows, "       0  #.~o"+strings.Repeat(".", 60)+"\n      64  .#"+strings.Repeat(".", 62))
	expect.Contains(t, "picture", picture, "# held: 2", "~ cooling: 1", "o free, was held: 1", ". free, never held: 124", "WORKER", "65", "1970-01-01T00:01:00Z")
	if strings.Contains(picture, "\x1b") {
		t.Error("colours outside of a terminal")
	}
}

func TestPictureOfALargeRingIsInBlocks(t *testing.T) {
	states := map[int]string{1000: "cooling", 1001: "held"}
	for id := range 40 {
		states[2000+id] = "held"
	}
	picture := ringPicture(ringWith(1<<20, states), false)
	if rows := strings.Count(picture, "\n"); rows > 64+mostHolders+10 {
		t.Errorf("a picture of %d rows, want %d at most", rows, 64+mostHolders+10)
	}
	expect.Contains(t, "picture", picture, "one character is 256 worker ids", "       0  ...#...#", "# held: 41", "cooling: 1", "and 9 more")
}

func TestPictureOfAPoolInQuarantine(t *testing.T) {
	ring := ringWith(4, map[int]string{0: "held", 1: "free"})
	ring.QuarantinedMs = 5000
	picture := ringPicture(ring, true)
	expect.Contains(t, "picture", picture, "\x1b[32m#\x1b[0m\x1b[31mx\x1b[0m", "quarantined, never held: 2")
}

func TestColoursAreForTerminals(t *testing.T) {
	null, err := os.Open(os.DevNull) // a character device, as a terminal is
	expect.NoError(t, "open the file", err)
	defer null.Close()
	for _, row := range []struct {
		env  map[string]string
		want bool
	}{{nil, true}, {map[string]string{"NO_COLOR": "1"}, false}, {map[string]string{"TERM": "dumb"}, false}} {
		if got := colourful(null, func(name string) string { return row.env[name] }); got != row.want {
			t.Errorf("a terminal with %v has colours: %v, want %v", row.env, got, row.want)
		}
	}
	if colourful(&strings.Builder{}, os.Getenv) {
		t.Error("a buffer has colours")
	}
}
