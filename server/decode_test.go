package server_test

import (
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// The numbers of the first rows were published by others.
func TestDecodeTakesAnIDApart(t *testing.T) {
	s := onEmbedded(t)
	must[wire.WorkerPool](t, s, 201, "PUT", "/worker/twitter", `{"layout":"41/5/5/12","epoch":"2010-11-04T01:42:54.657Z"}`)
	for _, row := range []struct {
		path                 string
		ms                   int64
		worker, datacenter   int
		sequence             int64
		layout, epoch, plain string
	}{
		{"1169786042799259000?epoch=2010-11-04T01:42:54.657Z", 1567733700834, 39, 0, 3448, "41/10/12", "2010-11-04T01:42:54.657Z", "1169786042799259000"},
		{"890399407000784896?epoch=2010-11-04T01:42:54.657Z&layout=41/10/12", 1501122736107, 1, 0, 0, "41/10/12", "2010-11-04T01:42:54.657Z", "890399407000784896"},
		{"1169786042799259000?pool=twitter", 1567733700834, 7, 1, 3448, "41/5/5/12", "2010-11-04T01:42:54.657Z", "1169786042799259000"},
		{"1169786042799259000?pool=twitter&datacenter=1", 1567733700834, 7, 1, 3448, "41/5/5/12", "2010-11-04T01:42:54.657Z", "1169786042799259000"},
		{"4194308097", 1577836801000, 1, 0, 1, "41/10/12", "2020-01-01T00:00:00Z", "4194308097"},
		{"4194308097?epoch=2020-01-01T02:00:00%2B02:00", 1577836801000, 1, 0, 1, "41/10/12", "2020-01-01T00:00:00Z", "4194308097"},
		{"0", 1577836800000, 0, 0, 0, "41/10/12", "2020-01-01T00:00:00Z", "0"},
		{"9223372036854775807", 1577836800000 + 1<<41 - 1, 1023, 0, 4095, "41/10/12", "2020-01-01T00:00:00Z", "9223372036854775807"},
		{"AzL8n0Y58m7?format=base62", 1577836800000 + 1<<41 - 1, 1023, 0, 4095, "41/10/12", "2020-01-01T00:00:00Z", "9223372036854775807"},
		{"zz?format=base62&layout=41/5/7", 1577836800000, 30, 0, 3, "41/5/7", "2020-01-01T00:00:00Z", "3843"},
		{"4194308097?format=decimal&layout=32/10/21@s", 1577836801000, 976, 0, 4097, "32/10/21@s", "2020-01-01T00:00:00Z", "4194308097"},
		{"0000004194308097?format=padded", 1577836801000, 1, 0, 1, "41/10/12", "2020-01-01T00:00:00Z", "4194308097"},
		{"%34194308097?format=decimal", 1577836801000, 1, 0, 1, "41/10/12", "2020-01-01T00:00:00Z", "4194308097"},
		{"202001010000010000004097?format=timed", 1577836801000, 1, 0, 1, "41/10/12", "2020-01-01T00:00:00Z", "4194308097"},
	} {
		a := s.do(t, "GET", "/id/decode/"+row.path, "")
		got := decode[wire.DecodedID](t, a, 200)
		epoch, err := time.Parse(time.RFC3339, row.epoch)
		if err != nil {
			t.Fatalf("reading the epoch of this row: %v", err)
		}
		want := wire.DecodedID{
			ID: row.plain, Time: time.UnixMilli(row.ms).UTC(), WorkerID: row.worker, Datacenter: row.datacenter, Sequence: row.sequence, Layout: row.layout, Epoch: epoch,
		}
		expect.Equal(t, a.asked, got, want)
		a.wantHeader(t, "Cache-Control", "no-store")
	}
}

func TestDecodeAsBareDigitsIsTimeWorkerDatacenterSequence(t *testing.T) {
	s := onEmbedded(t)
	a := s.do(t, "GET", "/id/decode/1169786042799259000?layout=41/5/5/12&epoch=2010-11-04T01:42:54.657Z", "", "Accept: text/plain")
	a.wantStatus(t, 200)
	a.wantBody(t, "1567733700834\n7\n1\n3448\n")
	expect.Contains(t, a.asked+": Content-Type", a.header.Get("Content-Type"), "text/plain")
}

func TestDecodeWithoutALayoutTakesThatOfTheDefaultPoolIfItIsKnown(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), IDPool: "main"})
	wantDecoded(t, s, "/id/decode/4194308097", "41/10/12", 2020) // nothing was stamped yet

	store := storetest.Open(t, redisstore.Config{})
	first := serve(t, server.Config{Store: store})
	must[wire.WorkerPool](t, first, 201, "PUT", "/worker/main", `{"layout":"41/5/5/12","epoch":"2024-01-01T00:00:00Z","datacenter":2}`)
	s = serve(t, server.Config{Store: store, IDPool: "main"})
	id := s.ids(t, "/id/snowflake").ID
	got := wantDecoded(t, s, "/id/decode/"+id, "41/5/5/12", 2024)
	expect.Equal(t, "GET /id/decode/"+id+": datacenter", got.Datacenter, 2)
	wantBetween(t, "GET /id/decode/"+id+": age of the id", time.Since(got.Time).Abs(), 0, 10*time.Minute)
	wantDecoded(t, s, "/id/decode/"+id+"?layout=41/10/12", "41/10/12", 2020) // with a layout comes the default epoch
	checkProblem(t, s.do(t, "GET", "/id/decode/"+id+"?pool=never", ""), wire.NotFound)
}

// wantDecoded decodes an id, and checks by which layout and epoch.
func wantDecoded(t *testing.T, s *service, path, layout string, year int) wire.DecodedID {
	t.Helper()
	got := must[wire.DecodedID](t, s, 200, "GET", path, "")
	expect.Equal(t, "GET "+path+": layout", got.Layout, layout)
	expect.Equal(t, "GET "+path+": year of the epoch", got.Epoch.Year(), year)
	return got
}
