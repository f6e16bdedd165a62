package compat

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/segment"
)

// Token lets a client of Didi tinyid draw ids of a tag. Both a tag and a token can have several.
type Token struct{ BizType, Token string }

const (
	maxBatch     = 100_000 // ids of one request; who asks for more gets as many
	codeBadToken = 5
	codeFailed   = 6
	idMemory     = 64 // bytes of an id, as a number and as text
)

// envelope is around all answers but the Simple ones.
type envelope struct {
	Data    any    `json:"data"`
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Tinyid answers as Didi tinyid does. Its methods are handlers, and safe for concurrent use.
type Tinyid struct {
	service Service
	tokens  []Token
}

// NewTinyid returns the handlers of a service. Without tokens and access control they refuse.
func NewTinyid(service Service, tokens []Token) *Tinyid { return &Tinyid{service, tokens} }

// IDs hands out ids of a tag: as JSON, or on a path ending in Simple as text with commas.
func (t *Tinyid) IDs(c echo.Context) error {
	bizType, allowed, err := t.asker(c)
	if err != nil {
		return err
	}
	if !allowed {
		t.service.Refused(c, ErrToken)
	}
	n, ok := batchSize(c.Request().Form.Get("batchSize"))
	if !ok {
		return javaFault(c, http.StatusBadRequest, "org.springframework.web.method.annotation.MethodArgumentTypeMismatchException",
			"Failed to convert value of type 'java.lang.String' to required type 'java.lang.Integer'; nested exception is "+
				"java.lang.NumberFormatException: For input string: \""+
				strings.TrimSpace(c.Request().Form.Get("batchSize"))+"\"")
	}
	if !allowed {
		return badToken(c)
	}
	if err := frontdoor.Reserve(c.Request().Context(), idMemory*int64(max(n, 0))); err != nil {
		return refuse(c, codeFailed, t.service.Problem(err).Title)
	}
	ids := make([]int64, max(n, 0))
	tag, err := t.service.Segments.Tag(c.Request().Context(), bizType)
	if err == nil {
		err = tag.Fill(c.Request().Context(), ids)
	}
	if err != nil {
		return refuse(c, codeFailed, "error query segmentId: "+t.fault(c, bizType, err))
	}
	t.service.Metrics.IDs("segment", len(ids))
	return send(c, ids, ids)
}

func isSimple(c echo.Context) bool { return strings.HasSuffix(c.Path(), "Simple") }

// send answers with data, or with its text.
func send(c echo.Context, data any, numbers []int64) error {
	if isSimple(c) {
		return javaText(c, commas(numbers))
	}
	return javaJSON(c, http.StatusOK, envelope{data, http.StatusOK, ""})
}

// refuse answers why there is no id.
func refuse(c echo.Context, code int, fault string) error {
	if isSimple(c) {
		return javaText(c, "")
	}
	return javaJSON(c, http.StatusOK, envelope{nil, code, fault})
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

// batchSize reads a Java Integer; none is 1.
func batchSize(text string) (n int, ok bool) {
	if text == "" {
		return 1, true
	}
	wide, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32)
	return int(min(wide, maxBatch)), err == nil
}

// span is a range (CurrentID, MaxID], of which ids are those whose remainder modulo Delta
// is Remainder. At LoadingID it is time for the next.
type span struct {
	MaxID     int64 `json:"maxId"`     //nolint:tagliatelle // tinyid's name
	LoadingID int64 `json:"loadingId"` //nolint:tagliatelle // tinyid's name
	CurrentID int64 `json:"currentId"` //nolint:tagliatelle // tinyid's name
	Delta     int64 `json:"delta"`
	Remainder int64 `json:"remainder"`
}

// rangeOf is a range in tinyid's form.
func rangeOf(r segment.Range) span {
	delta := max(r.Delta, 1)
	current := r.Lo - delta
	last := r.Lo + (r.Hi-1-r.Lo)/delta*delta
	return span{MaxID: last, LoadingID: current + (last-current)/5, CurrentID: current, Delta: delta, Remainder: r.Lo % delta}
}

// Range takes a range of a tag from the source for the client alone: as JSON, or on a path that
// ends in Simple as five numbers with commas between them.
func (t *Tinyid) Range(c echo.Context) error {
	bizType, allowed, err := t.asker(c)
	if err != nil {
		return err
	}
	if !allowed {
		t.service.Refused(c, ErrToken)
		return badToken(c)
	}
	taken, err := t.service.Source.Take(c.Request().Context(), bizType, 0)
	if err != nil {
		return refuse(c, codeFailed, t.fault(c, bizType, err))
	}
	got := rangeOf(taken)
	return send(c, got, []int64{got.CurrentID, got.LoadingID, got.MaxID, got.Delta, got.Remainder})
}

// ErrToken is the refusal of a request whose token is not one of its tag.
var ErrToken = errors.New("compat: the token is not one of this tag")

// asker reads the request's tag, and whether its token allows it.
func (t *Tinyid) asker(c echo.Context) (bizType string, allowed bool, err error) {
	if err := form(c); err != nil {
		return "", false, err
	}
	bizType = c.Request().Form.Get("bizType")
	if t.service.Access != nil {
		return bizType, bizType != "" && mayUse(c, bizType), nil
	}
	return bizType, t.knows(bizType, c.Request().Form.Get("token")), nil
}

// knows reports whether a token is one of the tag.
func (t *Tinyid) knows(bizType, text string) (allowed bool) {
	given := sha256.Sum256([]byte(text))
	for _, known := range t.tokens {
		// all are of one length then, and all are compared
		token := sha256.Sum256([]byte(known.Token))
		same := subtle.ConstantTimeCompare(given[:], token[:]) == 1
		allowed = allowed || same && known.BizType == bizType && known.Token != ""
	}
	return allowed
}

// Key is the service's API key that a client of tinyid sends instead of its token.
func (*Tinyid) Key(c echo.Context) string {
	if form(c) != nil {
		return ""
	}
	if token := c.Request().Form.Get("token"); access.LooksLikeKey(token) {
		return token
	}
	return ""
}

// Own reports whether a request has a token of its tag, and returns a caller limited to that.
func (t *Tinyid) Own(c echo.Context) (access.Caller, bool) {
	if form(c) != nil {
		return access.Caller{}, false
	}
	bizType := c.Request().Form.Get("bizType")
	ok := names.Valid(bizType) && t.knows(bizType, c.Request().Form.Get("token"))
	return access.Caller{Role: access.Use, Principal: "tinyid", Names: access.Names{bizType}}, ok
}

// Refuse answers a caller that the service does not admit.
func (t *Tinyid) Refuse(c echo.Context, err error) error {
	c.Response().Header().Del(echo.HeaderWWWAuthenticate) // which belongs to 401
	problem := t.service.Problem(err)
	if problem.Code == api.Unauthorized || problem.Code == api.Forbidden {
		return badToken(c)
	}
	return refuse(c, codeFailed, problem.Title)
}

// badToken answers to a token that is none.
func badToken(c echo.Context) error { return refuse(c, codeBadToken, "token is error") }

// fault is an error as the client gets it.
func (t *Tinyid) fault(c echo.Context, bizType string, err error) string {
	if errors.Is(err, segment.ErrNotFound) {
		return "cannot find biztype:" + bizType
	}
	t.service.logFailure(c, err)
	return t.service.Problem(err).Detail
}
