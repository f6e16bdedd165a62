package browser_test

import (
	"bytes"
	"context"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/workerlease"
)

const (
	pictures    = "../../docs/console"
	largestFile = 200_000 // bytes
)

// With -update the pictures are taken anew; without it they are looked at: each is there, is small,
// and is shown on the page.
func TestPicturesOfEveryViewAreInTheDocuments(t *testing.T) {
	if *update {
		takePictures(t)
	}
	page, err := os.ReadFile("../../docs/console.md")
	if err != nil {
		t.Fatalf("reading the page of the console: %v", err)
	}
	for _, view := range views {
		for _, scheme := range []string{"light", "dark"} {
			name := view.picture + "-" + scheme + ".png"
			text, err := os.ReadFile(filepath.Join(pictures, name))
			if err != nil {
				t.Errorf("the picture of %s: %v", view.picture, err)
				continue
			}
			if _, err := png.DecodeConfig(bytes.NewReader(text)); err != nil || len(text) > largestFile {
				t.Errorf("%s: %d bytes, %v", name, len(text), err)
			}
			if !strings.Contains(string(page), "console/"+name) {
				t.Errorf("docs/console.md does not show %s", name)
			}
		}
	}
}

func takePictures(t *testing.T) {
	s := serve(t, server.Config{Workers: workerlease.Config{NewPools: workerlease.NewPoolsTrust, Cooldown: time.Hour}, Console: server.ConsoleConfig{Durability: "as this Redis is configured; WARNING: with ack 0 a failover can lose confirmed writes and hand values out twice (--ack N waits for N replicas)"}})
	b := open(t, s.page("counters"))
	b.size(1280, 800)
	b.shows(".count", "No counters yet")
	b.view("events", "Events")
	b.shows(".hint", "Live.")
	lively(s)
	b.shows(".log", "nightly")
	for i := range 6 {
		given := s.send(201, "POST", "/worker/fleet", "")
		s.send(204, "DELETE", fmt.Sprintf("/worker/fleet/%d", 40+i), "", "Lease-Token: "+given["lease"].(string))
	}
	s.send(410, "PUT", "/worker/fleet/7", "", "Lease-Token: AAAAAAAAAAAAAAAAAAAAAA")
	s.send(200, "PUT", "/counter/tickets", `{"value":100000}`)
	broken := s.send(201, "POST", "/lock/import", `{"owner":"stuck"}`)
	s.send(200, "DELETE", fmt.Sprintf("/lock/import?force=%d", int64(broken["fence"].(float64))), "")
	b.shows(".log", "lock import was taken by force")
	busy(t, s)
	time.Sleep(90 * time.Second) // so that the plot has some steps of five seconds
	if err := os.MkdirAll(pictures, 0o750); err != nil {
		t.Fatalf("making the folder of pictures: %v", err)
	}
	for _, scheme := range []string{"light", "dark"} {
		b.prefers(scheme)
		for _, view := range views {
			b.view(view.path, view.heading)
			b.shows("main", view.part)
			view.do(b)
			if view.path == "counters" {
				b.until("a line is drawn", "document.querySelector('.spark-line').getAttribute('points').split(' ').length > 9")
			}
			eval[bool](b, "(document.activeElement.blur(), document.getElementById('said').textContent = '', true)")
			b.size(1280, 800)
			b.take(t, filepath.Join(pictures, view.picture+"-"+scheme+".png"))
			b.size(390, 844)
			phone := filepath.Join(t.ArtifactDir(), view.picture+"-"+scheme+"-phone.png")
			if view.path == "overview" {
				phone = filepath.Join(pictures, "phone-"+scheme+".png")
			}
			b.take(t, phone)
			b.size(1280, 800)
		}
	}
}

// busy adds to counters and issues tokens until the test ends, so that the lines have something to
// show.
func busy(t *testing.T, s *service) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			for _, path := range []string{fmt.Sprintf("/incr/orders?by=%d", 1+i%37), fmt.Sprintf("/incr/invoices?by=%d", 1+(i*7)%11), "/token"} {
				if send, err := newRequest(s, "POST", path, ""); err == nil {
					_ = send()
				}
			}
			time.Sleep(time.Duration(20+i/60%4*25) * time.Millisecond) // rates that differ
		}
	})
	t.Cleanup(func() {
		stop()
		ended.Wait()
	})
}

func (b *tab) take(t *testing.T, file string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatalf("taking the picture %s: %v", file, err)
	}
	if err := os.WriteFile(file, picture, 0o600); err != nil {
		t.Fatalf("writing the picture %s: %v", file, err)
	}
}
