package compat

import (
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
	var rows [][]string
	for _, tag := range l.service.Segments.Stats() {
		if !mayUse(c, tag.Tag) {
			continue
		}
		row := []string{tag.Tag, strconv.FormatBool(tag.Initialised), strconv.FormatBool(tag.Ready > 0), "0"}
		for _, part := range []segment.Part{tag.Current, tag.Next} {
			row = append(row, strconv.FormatInt(part.Pos, 10), strconv.FormatInt(part.Max, 10), strconv.FormatInt(part.Step, 10))
		}
		rows = append(rows, row)
	}
	return page(c, "name init next pos value0 max0 step0 value1 max1 step1", rows)
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
	var rows [][]string
	for _, tag := range tags {
		if !mayUse(c, tag.Tag) {
			continue
		}
		rows = append(rows, []string{tag.Tag, strconv.FormatInt(tag.Max, 10), strconv.FormatInt(tag.Step, 10), tag.Updated})
	}
	return page(c, "tag max step update", rows)
}

func segmentOff(c echo.Context) error {
	return javaFault(c, http.StatusInternalServerError, "java.lang.IllegalArgumentException",
		"You should config leaf.segment.enable=true first")
}

// page is a table as people and scripts that scrape it find it at Leaf's.
func page(c echo.Context, heads string, rows [][]string) error {
	var page strings.Builder
	cells := func(kind string, texts []string) {
		page.WriteString("<tr>\n")
		for _, text := range texts {
			page.WriteString("<" + kind + ">" + html.EscapeString(text) + "</" + kind + ">\n")
		}
		page.WriteString("</tr>\n")
	}
	page.WriteString("<!DOCTYPE html>\n<html>\n<head>\n<meta charset=\"UTF-8\">\n<title>Leaf</title>\n</head>\n<body>\n<table>\n<thead>\n")
	cells("th", strings.Fields(heads))
	page.WriteString("</thead>\n<tbody>\n")
	for _, row := range rows {
		cells("td", row)
	}
	page.WriteString("</tbody>\n</table>\n</body>\n</html>\n")
	noStore(c)
	return c.HTML(http.StatusOK, page.String())
}
