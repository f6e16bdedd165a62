package server_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/server"
)

var tinyidTokens = []server.TinyidToken{{BizType: "test", Token: "0f673adf80504e2eaa552f5d791b644c"}, {BizType: "test", Token: "second"}, {BizType: "gone", Token: "second"}}

const tinyidTest = "bizType=test&token=0f673adf80504e2eaa552f5d791b644c"

func onTinyid(t *testing.T, source segment.Source) *service {
	t.Helper()
	return serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), SegmentSource: source, TinyidTokens: tinyidTokens})
}

// The recorded answers of tinyid, in their order. Its ranges are (currentId, maxId], so that a tag
// whose max_id was 1 gives 2 first.
func TestTinyidsAnswers(t *testing.T) {
	t.Parallel()
	s := onTinyid(t, leafRow("test", 2, 100_000))
	form := "Content-Type: application/x-www-form-urlencoded"
	for _, row := range []struct{ path, body, kind, want string }{
		{"nextId?" + tinyidTest, "", javaJSON, `{"data":[2],"code":200,"message":""}`},
		{"nextIdSimple?" + tinyidTest, "", javaText, `3`},
		{"nextIdSimple?" + tinyidTest + "&batchSize=3", "", javaText, `4,5,6`},
		{"nextId?" + tinyidTest + "&batchSize=3", "", javaJSON, `{"data":[7,8,9],"code":200,"message":""}`},
		{"nextId?bizType=test&token=second&batchSize=", "", javaJSON, `{"data":[10],"code":200,"message":""}`},
		{"nextId?" + tinyidTest + "&batchSize=%2B1&other=thing", "", javaJSON, `{"data":[11],"code":200,"message":""}`},
		{"nextId", tinyidTest + "&batchSize=2", javaJSON, `{"data":[12,13],"code":200,"message":""}`},
		{"nextIdSimple?bizType=test", "token=second", javaText, `14`},
		{"nextId?" + tinyidTest + "&batchSize=0", "", javaJSON, `{"data":[],"code":200,"message":""}`},
		{"nextId?" + tinyidTest + "&batchSize=-5", "", javaJSON, `{"data":[],"code":200,"message":""}`},
		{"nextIdSimple?" + tinyidTest + "&batchSize=0", "", javaText, ``},

		{"nextId?bizType=test&token=wrong", "", javaJSON, `{"data":null,"code":5,"message":"token is error"}`},
		{"nextId?bizType=test", "", javaJSON, `{"data":null,"code":5,"message":"token is error"}`},
		{"nextId", "", javaJSON, `{"data":null,"code":5,"message":"token is error"}`},
		{"nextId?bizType=gone&token=0f673adf80504e2eaa552f5d791b644c", "", javaJSON, `{"data":null,"code":5,"message":"token is error"}`},
		{"nextId?bizType=te%2Fst&token=second", "", javaJSON, `{"data":null,"code":5,"message":"token is error"}`},
		{"nextIdSimple?bizType=test&token=wrong", "", javaText, ``},
		{"nextSegmentId?bizType=test", "", javaJSON, `{"data":null,"code":5,"message":"token is error"}`},
		{"nextSegmentIdSimple?bizType=test", "", javaText, ``},

		{"nextId?bizType=gone&token=second", "", javaJSON, `{"data":null,"code":6,"message":"error query segmentId: cannot find biztype:gone"}`},
		{"nextId?bizType=gone&token=second&batchSize=0", "", javaJSON, `{"data":null,"code":6,"message":"error query segmentId: cannot find biztype:gone"}`},
		{"nextIdSimple?bizType=gone&token=second", "", javaText, ``},
		{"nextSegmentId?bizType=gone&token=second", "", javaJSON, `{"data":null,"code":6,"message":"cannot find biztype:gone"}`},
		{"nextSegmentIdSimple?bizType=gone&token=second", "", javaText, ``},
	} {
		method, header := "GET", []string(nil)
		if row.body != "" {
			method, header = "POST", []string{form}
		}
		t.Run(row.path+" "+row.body, func(t *testing.T) {
			wantDoor(t, s.do(t, method, "/tinyid/id/"+row.path, row.body, header...), 200, row.kind, row.want)
		})
	}
	wantDoor(t, s.do(t, "POST", "/tinyid/id/nextId?"+tinyidTest, ""), 200, javaJSON, `{"data":[15],"code":200,"message":""}`)
}

func TestTinyidsRanges(t *testing.T) {
	s := onTinyid(t, leafRow("test", 2, 100_000))
	wantDoor(t, s.do(t, "POST", "/tinyid/id/nextSegmentIdSimple?"+tinyidTest, ""), 200, javaText, `1,20001,100001,1,0`)
	wantDoor(t, s.do(t, "GET", "/tinyid/id/nextSegmentId?"+tinyidTest+"&batchSize=abc", ""), 200, javaJSON,
		`{"data":{"maxId":200001,"loadingId":120001,"currentId":100001,"delta":1,"remainder":0},"code":200,"message":""}`)
	// a range of its own
	wantDoor(t, s.do(t, "GET", "/tinyid/id/nextIdSimple?"+tinyidTest, ""), 200, javaText, `200002`)

	// A stripe: the client begins at currentId + delta and ends at maxId; ids are congruent to the
	// remainder.
	for _, row := range []struct {
		r    segment.Range
		want string
	}{
		{segment.Range{Lo: 1, Hi: 31, Delta: 3}, `-2,4,28,3,1`},
		{segment.Range{Lo: 6, Hi: 31, Delta: 3}, `3,8,30,3,0`},
		{segment.Range{Lo: 7, Hi: 8, Delta: 2}, `5,5,7,2,1`},
		{segment.Range{Lo: 0, Hi: 1}, `-1,-1,0,1,0`},
	} {
		s := onTinyid(t, sourceFunc(func(string, int64) rangeOrError { return rangeOrError{got: row.r} }))
		a := s.do(t, "POST", "/tinyid/id/nextSegmentIdSimple?"+tinyidTest, "")
		wantDoor(t, a, 200, javaText, row.want)
		var current, loading, last, delta, remainder int64
		if _, err := fmt.Sscanf(string(a.body), "%d,%d,%d,%d,%d", &current, &loading, &last, &delta, &remainder); err != nil {
			t.Fatalf("%v; want five numbers: %v", a, err)
		}
		var ids []int64
		for id := current + delta; id <= last; id += delta {
			ids = append(ids, id)
		}
		if ids[0] != row.r.Lo || ids[len(ids)-1] != last || last >= row.r.Hi || last+delta < row.r.Hi || ids[0]%delta != remainder {
			t.Errorf("%s: a client makes the ids %v of %s, want all of %+v and each congruent to the remainder", a.asked, ids, a.body, row.r)
		}
	}
}

func TestTinyidsBatches(t *testing.T) {
	t.Parallel()
	s := onTinyid(t, leafRow("test", 1, 100_000))
	for size, want := range map[string]int{"1000": 1000, "100000": 100_000, "100001": 100_000, "1000000000": 100_000, "2147483647": 100_000} {
		a := s.do(t, "GET", "/tinyid/id/nextIdSimple?"+tinyidTest+"&batchSize="+size, "")
		a.wantStatus(t, 200)
		expect.Equal(t, a.asked+": number of ids", strings.Count(string(a.body), ",")+1, want)
	}
	for _, size := range []string{"abc", "1e9", "1.5", "2147483648", "1,2"} {
		wantDoor(t, s.do(t, "GET", "/tinyid/id/nextId?bizType=x&batchSize="+size, ""), 400, javaJSON, `{"timestamp":0,"status":400,"error":"Bad Request",`+
			`"exception":"org.springframework.web.method.annotation.MethodArgumentTypeMismatchException",`+
			`"message":"Failed to convert value of type 'java.lang.String' to required type 'java.lang.Integer'; nested exception is java.lang.NumberFormatException: For input string: \"`+size+
			`\"","path":"/tinyid/id/nextId"}`)
	}
}

func TestTinyidWithoutTokensIsClosedToAll(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), TinyidTokens: nil})
	for _, query := range []string{tinyidTest, "bizType=test", "bizType=test&token=", ""} {
		wantDoor(t, s.do(t, "GET", "/tinyid/id/nextId?"+query, ""), 200, javaJSON, `{"data":null,"code":5,"message":"token is error"}`)
	}
	empty := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), TinyidTokens: []server.TinyidToken{{BizType: "", Token: ""}, {BizType: "test", Token: ""}}})
	for _, query := range []string{"bizType=test&token=", "bizType=&token=", "bizType=test", ""} {
		wantDoor(t, empty.do(t, "GET", "/tinyid/id/nextIdSimple?"+query, ""), 200, javaText, ``)
	}
}

func TestTinyidsFaultsAreToldAndNothingOfTheStoresAddress(t *testing.T) {
	err := fmt.Errorf("%w: %w", redisstore.ErrUnavailable, errors.New("dial secret.example:3306"))
	s := onTinyid(t, sourceFunc(func(string, int64) rangeOrError { return rangeOrError{err: err} }))
	for _, path := range []string{"nextId", "nextSegmentId"} {
		a := s.do(t, "GET", "/tinyid/id/"+path+"?"+tinyidTest, "")
		a.wantStatus(t, 200)
		if text := string(a.body); !strings.HasPrefix(text, `{"data":null,"code":6,"message":"`) || strings.Contains(text, "secret.example") {
			t.Errorf("%v; want code 6 with a message, and nothing of the store's address", a)
		}
		wantDoor(t, s.do(t, "GET", "/tinyid/id/"+path+"Simple?"+tinyidTest, ""), 200, javaText, "")
	}
	expect.Contains(t, "the log, which operators read", s.log.String(), "secret.example")
	if log := s.log.String(); strings.Contains(log, tinyidTokens[0].Token) {
		t.Errorf("the log holds the token %q, want none:\n%s", tinyidTokens[0].Token, log)
	}
}
