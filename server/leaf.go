package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/stamper"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// LeafDoor says what the door for clients of Meituan Leaf gives. The zero value gives all that Leaf
// does.
type LeafDoor struct {
	NoSegment, NoSnowflake bool // modes that are switched off: they answer 0
	// of the Snowflake ids, which has Leaf's layout and epoch; "" = leaf
	Pool string
}

func (l LeafDoor) pool() string {
	if l.Pool == "" {
		return "leaf"
	}
	return l.Pool
}

// leafLayout and leafEpoch are those of Leaf's ids. They cannot be set there.
var (
	leafLayout = snowflake.MustLayout("41/10/12")
	leafEpoch  = time.UnixMilli(1288834974657).UTC()
)

// shapes has Leaf's sequences begin by lot, as there, so that ids modulo a number of shards are
// spread.
func (l LeafDoor) shapes() map[string]stamper.Shape {
	if l.NoSnowflake {
		return nil
	}
	return map[string]stamper.Shape{l.pool(): {Layout: leafLayout, Epoch: leafEpoch, Spread: true}}
}

// pin adds the pool of Leaf's ids to those that are pinned, unless it is there.
func (l LeafDoor) pin(pools map[string]workerlease.Pin) map[string]workerlease.Pin {
	if _, pinned := pools[l.pool()]; pinned || l.NoSnowflake {
		return pools
	}
	pools = maps.Clone(pools)
	if pools == nil {
		pools = map[string]workerlease.Pin{}
	}
	pools[l.pool()] = workerlease.Pin{Shape: workerlease.Shape{Layout: leafLayout.String(), Epoch: leafEpoch}}
	return pools
}

// What Leaf gives in the place of an id.
const (
	leafNotReady = -1 // nothing is initialised, or the clock was wrong
	leafNoKey    = -2
	leafEmpty    = -3 // there is no id in either segment
)

func (s *Server) leafSegment(c echo.Context) error {
	if s.config.Leaf.NoSegment {
		return javaText(c, "0")
	}
	key, err := name(c, "key")
	if err != nil {
		s.noteRefusal(c, err)
		return s.leafException(c, leafNoKey) // such a key no table has
	}
	id, err := s.segments.Next(c.Request().Context(), key)
	switch {
	case err == nil:
		s.metrics.IDs("segment", 1)
		return javaText(c, strconv.FormatInt(id, 10))
	case errors.Is(err, segment.ErrUnknownTag):
		return s.leafException(c, leafNoKey)
	case errors.Is(err, segment.ErrClosed):
		return s.leafException(c, leafNotReady)
	}
	return s.leafNone(c, err, leafEmpty)
}

func (s *Server) leafSnowflake(c echo.Context) error {
	if s.config.Leaf.NoSnowflake {
		return javaText(c, "0")
	}
	// what the key is says nothing here, but is a name that not everybody may touch
	if _, err := name(c, "key"); err != nil && !caller(c).Names.All() {
		s.noteRefusal(c, err)
		return s.leafException(c, leafNoKey)
	}
	var ids [1]snowflake.ID
	if _, err := s.stamper.Stamp(c.Request().Context(), s.config.Leaf.pool(), ids[:]); err != nil {
		return s.leafNone(c, err, leafNotReady)
	}
	s.metrics.IDs("snowflake", 1)
	return javaText(c, ids[0].String())
}

// leafDecode takes an id apart as Leaf does, which has one layout and one epoch, with the time on
// the process's own clock.
func (s *Server) leafDecode(c echo.Context) error {
	if err := form(c); err != nil {
		return err
	}
	if !c.Request().Form.Has("snowflakeId") {
		return javaFault(c, http.StatusBadRequest, "org.springframework.web.bind.MissingServletRequestParameterException",
			"Required String parameter 'snowflakeId' is not present")
	}
	id, err := strconv.ParseInt(c.Request().Form.Get("snowflakeId"), 10, 64)
	if err != nil {
		return javaJSON(c, http.StatusOK, map[string]string{"errorMsg": "snowflake Id反解析发生异常!"}) //nolint:gosmopolitan // Leaf says it so
	}
	at := id>>22 + leafEpoch.UnixMilli()
	return javaJSON(c, http.StatusOK, struct {
		Timestamp string `json:"timestamp"`
		Worker    string `json:"workerId"`   //nolint:tagliatelle // Leaf's name
		Sequence  string `json:"sequenceId"` //nolint:tagliatelle // Leaf's name
	}{
		strconv.FormatInt(at, 10) + time.UnixMilli(at).Format("(2006-01-02 15:04:05.000)"),
		strconv.FormatInt(id>>12&1023, 10), strconv.FormatInt(id&4095, 10),
	})
}

// leafNone is the answer without an id where one may come later. Leaf says no time to wait; a
// client that looks for Retry-After finds it.
func (s *Server) leafNone(c echo.Context, err error, id int) error {
	s.logDoor(c, err)
	problemOf(err).SetRetryAfter(c.Response().Header())
	return s.leafException(c, id)
}

// leafException is how Leaf says that it has no id.
func (s *Server) leafException(c echo.Context, id int) error {
	return javaFault(c, http.StatusInternalServerError, "com.sankuai.inf.leaf.server.exception.LeafServerException",
		"Result{id="+strconv.Itoa(id)+", status=EXCEPTION}")
}

// leafRefuse is how a caller is refused whom the service does not let in. Leaf has no such answer
// of its own: it is the one for what it does not know.
func (s *Server) leafRefuse(c echo.Context, err error) error {
	problem := problemOf(err)
	c.Response().Header().Del(echo.HeaderWWWAuthenticate) // which belongs to 401
	return javaFault(c, http.StatusInternalServerError, "com.sankuai.inf.leaf.server.exception.LeafServerException", problem.Title+": "+problem.Detail)
}

// logDoor tells the operator what the door's answer does not.
func (s *Server) logDoor(c echo.Context, err error) {
	s.log.ErrorContext(c.Request().Context(), "no id for a door's client", "code", string(problemOf(err).Code), "error", err)
}

// javaFault answers as Spring Boot 1.5 does, which both systems are built on.
func javaFault(c echo.Context, status int, exception, message string) error {
	return javaJSON(c, status, struct {
		Timestamp int64  `json:"timestamp"`
		Status    int    `json:"status"`
		Error     string `json:"error"`
		Exception string `json:"exception"`
		Message   string `json:"message"`
		Path      string `json:"path"`
	}{time.Now().UnixMilli(), status, http.StatusText(status), exception, message, rawPath(c.Request().URL)})
}

// javaText answers with a text and nothing behind it.
func javaText(c echo.Context, text string) error {
	fresh(c)
	return c.Blob(http.StatusOK, "text/plain;charset=UTF-8", []byte(text))
}

// javaJSON answers with JSON, in which < > & stand as they are, and nothing behind it.
func javaJSON(c echo.Context, status int, message any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(message); err != nil {
		return err
	}
	fresh(c)
	return c.Blob(status, "application/json;charset=UTF-8", bytes.TrimSuffix(text.Bytes(), []byte("\n")))
}

// maxForm bounds the form of a door: it is read before anybody is asked who they are, and holds a
// name, a number and a token.
const maxForm = 8 << 10

// form reads the parameters of the query and of a form in the body. What is not encoded as it
// should be is not there.
func form(c echo.Context) error {
	if request := c.Request(); request.Form == nil && request.Body != nil {
		request.Body = http.MaxBytesReader(c.Response().Writer, request.Body, maxForm)
	}
	err := c.Request().ParseForm()
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return tooLarge
	}
	if errors.Is(err, frontdoor.ErrOverloaded) {
		return err
	}
	return nil
}
