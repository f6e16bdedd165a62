package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/segment"
)

// TinyidToken lets its holder draw ids of a tag through the door for clients of Didi tinyid. A
// tag can have several, and a token can be of several tags.
type TinyidToken struct{ BizType, Token string }

const (
	maxTinyid      = 100_000 // ids of one request; who asks for more gets as many
	tinyidBadToken = 5
	tinyidFailed   = 6
)

// tinyidAnswer is the envelope of all answers but the Simple ones.
type tinyidAnswer struct {
	Data    any    `json:"data"`
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (s *Server) tinyidNext(c echo.Context) error {
	return s.tinyidIDs(c, func(ids []int64, fault string) error {
		if fault != "" {
			return javaJSON(c, http.StatusOK, tinyidAnswer{nil, tinyidFailed, fault})
		}
		return javaJSON(c, http.StatusOK, tinyidAnswer{ids, http.StatusOK, ""})
	})
}

func (s *Server) tinyidNextSimple(c echo.Context) error {
	return s.tinyidIDs(c, func(ids []int64, _ string) error { return javaText(c, commas(ids)) })
}

func commas(numbers []int64) string {
	var text []byte
	for i, n := range numbers {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, n, 10)
	}
	return string(text)
}

// tinyidIDs draws as many ids as the request asks for, and has them sent, or told why there are
// none.
func (s *Server) tinyidIDs(c echo.Context, send func(ids []int64, fault string) error) error {
	bizType, allowed, err := s.tinyidAsker(c)
	if err != nil {
		return err
	}
	if !allowed {
		s.noteRefusal(c, errTinyidToken)
	}
	n, ok := batchSize(c.Request().Form.Get("batchSize"))
	if !ok {
		return javaFault(c, http.StatusBadRequest, "org.springframework.web.method.annotation.MethodArgumentTypeMismatchException",
			"Failed to convert value of type 'java.lang.String' to required type 'java.lang.Integer'; nested exception is java.lang.NumberFormatException: For input string: \""+
				strings.TrimSpace(c.Request().Form.Get("batchSize"))+"\"")
	}
	if !allowed {
		return tinyidRefuse(c)
	}
	if err := frontdoor.Reserve(c.Request().Context(), idMemory*int64(max(n, 0))); err != nil {
		return send(nil, problemOf(err).Title)
	}
	ids := make([]int64, max(n, 0))
	tag, err := s.segments.Tag(c.Request().Context(), bizType)
	if err == nil {
		err = tag.NextN(c.Request().Context(), ids)
	}
	if err != nil {
		return send(nil, "error query segmentId: "+s.tinyidFault(c, bizType, err))
	}
	s.metrics.IDs("segment", len(ids))
	return send(ids, "")
}

// batchSize reads a Java Integer; none is 1.
func batchSize(text string) (n int, ok bool) {
	if text == "" {
		return 1, true
	}
	wide, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	return int(min(wide, maxTinyid)), err == nil
}

// tinyidSegment is a range (CurrentID, MaxID], of which ids are those whose remainder modulo Delta
// is Remainder. At LoadingID it is time for the next.
type tinyidSegment struct {
	MaxID     int64 `json:"maxId"`     //nolint:tagliatelle // tinyid's name
	LoadingID int64 `json:"loadingId"` //nolint:tagliatelle // tinyid's name
	CurrentID int64 `json:"currentId"` //nolint:tagliatelle // tinyid's name
	Delta     int64 `json:"delta"`
	Remainder int64 `json:"remainder"`
}

// tinyidOf says a range in tinyid's way.
func tinyidOf(r segment.Range) tinyidSegment {
	delta := max(r.Delta, 1)
	current := r.Lo - delta
	last := r.Lo + (r.Hi-1-r.Lo)/delta*delta
	return tinyidSegment{MaxID: last, LoadingID: current + (last-current)/5, CurrentID: current, Delta: delta, Remainder: r.Lo % delta}
}

func (s *Server) tinyidRange(c echo.Context) error {
	return s.tinyidTake(c, func(got tinyidSegment, fault string) error {
		if fault != "" {
			return javaJSON(c, http.StatusOK, tinyidAnswer{nil, tinyidFailed, fault})
		}
		return javaJSON(c, http.StatusOK, tinyidAnswer{got, http.StatusOK, ""})
	})
}

func (s *Server) tinyidRangeSimple(c echo.Context) error {
	return s.tinyidTake(c, func(got tinyidSegment, fault string) error {
		if fault != "" {
			return javaText(c, "")
		}
		return javaText(c, commas([]int64{got.CurrentID, got.LoadingID, got.MaxID, got.Delta, got.Remainder}))
	})
}

// tinyidTake takes a range from the source for the client alone, and has it sent, or told why there
// is none.
func (s *Server) tinyidTake(c echo.Context, send func(got tinyidSegment, fault string) error) error {
	bizType, allowed, err := s.tinyidAsker(c)
	if err != nil {
		return err
	}
	if !allowed {
		s.noteRefusal(c, errTinyidToken)
		return tinyidRefuse(c)
	}
	got, err := s.source.Take(c.Request().Context(), bizType, 0)
	if err != nil {
		return send(tinyidSegment{}, s.tinyidFault(c, bizType, err))
	}
	return send(tinyidOf(got), "")
}

// errTinyidToken is why a request for a tag is refused whose token is not one of it.
var errTinyidToken = &fault{wire.Forbidden, "token", "not one of this tag"}

// tinyidAsker reads what the request is for, and whether its token allows that.
func (s *Server) tinyidAsker(c echo.Context) (bizType string, allowed bool, err error) {
	if err := form(c); err != nil {
		return "", false, err
	}
	bizType = c.Request().Form.Get("bizType")
	if s.config.Access != nil {
		return bizType, bizType != "" && caller(c).Names.Allow(bizType), nil
	}
	return bizType, s.tinyidKnows(bizType, c.Request().Form.Get("token")), nil
}

// tinyidKnows reports whether a token of the door is one for the tag.
func (s *Server) tinyidKnows(bizType, text string) (allowed bool) {
	given := sha256.Sum256([]byte(text))
	for _, known := range s.config.TinyidTokens {
		// all are of one length then, and all are compared
		token := sha256.Sum256([]byte(known.Token))
		same := subtle.ConstantTimeCompare(given[:], token[:]) == 1
		allowed = allowed || same && known.BizType == bizType && known.Token != ""
	}
	return allowed
}

// tinyidKey is the API key that a client of tinyid has in the place of its token.
func tinyidKey(c echo.Context) string {
	if form(c) != nil {
		return ""
	}
	if token := c.Request().Form.Get("token"); access.LooksLikeKey(token) {
		return token
	}
	return ""
}

// tinyidOwn lets in who has a token of the door, for its tag alone.
func (s *Server) tinyidOwn(c echo.Context) (access.Caller, bool) {
	if form(c) != nil {
		return access.Caller{}, false
	}
	bizType := c.Request().Form.Get("bizType")
	ok := names.Valid(bizType) && s.tinyidKnows(bizType, c.Request().Form.Get("token"))
	return access.Caller{Role: access.Use, Principal: "tinyid", Names: access.Names{bizType}}, ok
}

// tinyidDenied is how a caller is refused whom the service does not let in.
func tinyidDenied(c echo.Context, err error) error {
	c.Response().Header().Del(echo.HeaderWWWAuthenticate) // which belongs to 401
	problem := problemOf(err)
	if problem.Code == wire.Unauthorized || problem.Code == wire.Forbidden || strings.HasSuffix(c.Path(), "Simple") {
		return tinyidRefuse(c)
	}
	return javaJSON(c, http.StatusOK, tinyidAnswer{nil, tinyidFailed, problem.Title})
}

// tinyidRefuse answers to a token that is none.
func tinyidRefuse(c echo.Context) error {
	if strings.HasSuffix(c.Path(), "Simple") {
		return javaText(c, "")
	}
	return javaJSON(c, http.StatusOK, tinyidAnswer{nil, tinyidBadToken, "token is error"})
}

// tinyidFault is an error as the client is told it.
func (s *Server) tinyidFault(c echo.Context, bizType string, err error) string {
	if errors.Is(err, segment.ErrUnknownTag) {
		return "cannot find biztype:" + bizType
	}
	s.logDoor(c, err)
	return problemOf(err).Detail
}
