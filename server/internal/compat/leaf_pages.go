package compat

import (
	"bufio"
	"html"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/segment"
)

// Cache shows the tags in use: first the range that ids are drawn from, then the one after it.
func (l *Leaf) Cache(c echo.Context) error {
	if l.config.NoSegment {
		return segmentOff(c)
	}
	return page(c, "name init next pos value0 max0 step0 value1 max1 step1", func(add func(...string)) {
		for _, tag := range l.service.Segments.Stats() {
			if !mayUse(c, tag.Tag) {
				continue
			}
			row := []string{tag.Tag, strconv.FormatBool(tag.Initialised), strconv.FormatBool(tag.Ready > 0), "0"}
			for _, part := range []segment.Part{tag.Current, tag.Next} {
				row = append(row, strconv.FormatInt(part.Pos, 10), strconv.FormatInt(part.Max, 10), strconv.FormatInt(part.Step, 10))
			}
			add(row...)
		}
	})
}

// DB shows the tags of the source.
func (l *Leaf) DB(c echo.Context) error {
	if l.config.NoSegment {
		return segmentOff(c)
	}
	tags, err := l.service.Tags(c.Request().Context())
	if err != nil {
		return err
	}
	return page(c, "tag max step update", func(add func(...string)) {
		for _, tag := range tags {
			if mayUse(c, tag.Tag) {
				add(tag.Tag, strconv.FormatInt(tag.Max, 10), strconv.FormatInt(tag.Step, 10), tag.Updated)
			}
		}
	})
}

func segmentOff(c echo.Context) error {
	return javaFault(c, http.StatusInternalServerError, "java.lang.IllegalArgumentException",
		"You should config leaf.segment.enable=true first")
}

// page is a table as people and scripts that scrape it find it at Leaf's. It is sent row by row:
// there may be ten thousand.
func page(c echo.Context, heads string, rows func(add func(...string))) error {
	noStore(c)
	c.Response().Header().Set(echo.HeaderContentType, echo.MIMETextHTMLCharsetUTF8)
	c.Response().WriteHeader(http.StatusOK)
	to := bufio.NewWriterSize(c.Response(), 8<<10) // it keeps the first error
	cells := func(kind string, texts []string) {
		_, _ = to.WriteString("<tr>\n")
		for _, text := range texts {
			_, _ = to.WriteString("<" + kind + ">" + html.EscapeString(text) + "</" + kind + ">\n")
		}
		_, _ = to.WriteString("</tr>\n")
	}
	_, _ = to.WriteString("<!DOCTYPE html>\n<html>\n<head>\n<meta charset=\"UTF-8\">\n<title>Leaf</title>\n</head>\n<body>\n" +
		"<table>\n<thead>\n")
	cells("th", strings.Fields(heads))
	_, _ = to.WriteString("</thead>\n<tbody>\n")
	rows(func(texts ...string) { cells("td", texts) })
	_, _ = to.WriteString("</tbody>\n</table>\n</body>\n</html>\n")
	return to.Flush()
}
