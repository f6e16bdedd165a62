package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// The numbers of the first rows were published by others.
func TestDecodeTakesAnIDApart(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	must[api.WorkerPool](t, s, 201, "PUT", "/worker/twitter", `{"layout":"41/5/5/12","epoch":"2010-11-04T01:42:54.657Z"}`)
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
		got := decode[api.DecodedID](t, a, 200)
		epoch, err := time.Parse(time.RFC3339, row.epoch)
		expect.NoError(t, "reading the epoch of this row", err)
		want := api.DecodedID{
			ID: row.plain, Time: api.At(time.UnixMilli(row.ms).UTC()), WorkerID: row.worker, Datacenter: row.datacenter, Sequence: row.sequence, Layout: row.layout, Epoch: api.At(epoch),
		}
		expect.Equal(t, a.asked, got, want)
		a.wantHeader(t, "Cache-Control", "no-store")
	}
}

// Baidu's uid-generator has worker ids of 21 and 22 bits. Its epoch is a midnight of its time zone.
func TestDecodeTakesAnIDOfUIDGeneratorApart(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	got := must[api.DecodedID](t, s, 200, "GET", "/id/decode/180363646902239241?layout=29/21/13@s&epoch=2016-09-20T00:00:00%2B08:00", "")
	expect.Equal(t, "day in Shanghai", got.Time.In(time.FixedZone("", 8*60*60)).Format(time.DateOnly), "2017-01-19")
	expect.Equal(t, "worker id", got.WorkerID, 4)
	expect.Equal(t, "sequence", got.Sequence, int64(9))
	wide := must[api.DecodedID](t, s, 200, "GET", "/id/decode/180363646902239241?layout=28/22/13@s&epoch=2016-09-20T00:00:00%2B08:00", "")
	expect.Equal(t, "worker id of 22 bits, and sequence", [2]int64{int64(wide.WorkerID), wide.Sequence}, [2]int64{4, 9})
	// which are not leased: 20 bits at most
	for _, layout := range []string{"28/22/13@s", "29/21/13@s", "29/11/10/13@s"} {
		wantField(t, s.do(t, "POST", "/worker/wide", `{"layout":"`+layout+`"}`), api.InvalidRequest, "layout", "20 bits")
		wantField(t, s.do(t, "PUT", "/worker/wide", `{"layout":"`+layout+`"}`), api.InvalidRequest, "layout", "20 bits")
	}
}

// RFC 3339 ends with the year 9999.
func TestDecodeRefusesAnIDOfATimeThatCannotBeWritten(t *testing.T) {
	s := onEmbedded(t)
	for _, path := range []string{
		"9223372036854775807?layout=41/10/12@s", "9223372036854775807?layout=61/1/1@s", "9223372036854775807?layout=61/1/1", "1056140722176?layout=41/1/1@s", "1?layout=62/1/0@s&epoch=9999-12-31T23:59:59.999Z",
		"4?layout=41/1/1&epoch=9999-12-31T23:59:59.999Z",
	} {
		for _, header := range []string{"Accept: application/json", "Accept: text/plain"} {
			a := s.do(t, "GET", "/id/decode/"+path, "", header)
			if strings.HasPrefix(path, "1?") {
				a.wantStatus(t, 200)
				continue
			}
			wantField(t, a, api.InvalidRequest, "id", "after the year 9999")
		}
	}
}

// A moment before 1970 is no layout's epoch, well written or not, and the refusal says so.
func TestDecodeSaysFromWhenAnEpochMayBe(t *testing.T) {
	s := onEmbedded(t)
	for _, epoch := range []string{"1969-12-31T23:59:59.999Z", "0001-01-01T00:00:00Z", "x"} {
		wantField(t, s.do(t, "GET", "/id/decode/1?epoch="+epoch, ""), api.InvalidRequest, "epoch", "RFC 3339 from 1970 on")
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
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), IDPool: "main"})
	wantDecoded(t, s, "/id/decode/4194308097", "41/10/12", 2020) // nothing was stamped yet

	store := storetest.Open(t, redisstore.Config{})
	first := serve(t, server.Config{Store: store})
	must[api.WorkerPool](t, first, 201, "PUT", "/worker/main", `{"layout":"41/5/5/12","epoch":"2024-01-01T00:00:00Z","datacenter":2}`)
	s = serve(t, server.Config{Store: store, IDPool: "main"})
	id := s.ids(t, "/id/snowflake").ID
	got := wantDecoded(t, s, "/id/decode/"+id, "41/5/5/12", 2024)
	expect.Equal(t, "GET /id/decode/"+id+": datacenter", got.Datacenter, 2)
	wantBetween(t, "GET /id/decode/"+id+": age of the id", time.Since(got.Time.Time).Abs(), 0, 10*time.Minute)
	// with a layout comes the default epoch
	wantDecoded(t, s, "/id/decode/"+id+"?layout=41/10/12", "41/10/12", 2020)
	checkProblem(t, s.do(t, "GET", "/id/decode/"+id+"?pool=never", ""), api.NotFound)
}

// wantDecoded decodes an id, and checks by which layout and epoch.
func wantDecoded(t *testing.T, s *service, path, layout string, year int) api.DecodedID {
	t.Helper()
	got := must[api.DecodedID](t, s, 200, "GET", path, "")
	expect.Equal(t, "GET "+path+": layout", got.Layout, layout)
	expect.Equal(t, "GET "+path+": year of the epoch", got.Epoch.Year(), year)
	return got
}
