package serverstatus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// The part of FastCGI 1.0 (its specification, sections 3 to 5 and 8) that one GET
// needs.
const (
	fcgiVersion      = 1
	fcgiBeginRequest = 1
	fcgiEndRequest   = 3
	fcgiParams       = 4
	fcgiStdin        = 5
	fcgiStdout       = 6
	fcgiResponder    = 1 // role
	fcgiRequestID    = 1 // ours, the only one of the connection
	fcgiHeaderBytes  = 8
)

// fcgiGet is a request for uri, after whose answer the server closes.
func fcgiGet(path, query string) string {
	var params strings.Builder
	for _, p := range [][2]string{
		{"REQUEST_METHOD", "GET"}, {"SCRIPT_NAME", path}, {"SCRIPT_FILENAME", path},
		{"QUERY_STRING", query}, {"REQUEST_URI", path + "?" + query}, {"SERVER_PROTOCOL", "HTTP/1.0"},
	} {
		// Lengths above 127 take four bytes with the highest bit set; always so here.
		for _, s := range p {
			params.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s))|1<<31))
		}
		params.WriteString(p[0])
		params.WriteString(p[1])
	}
	return fcgiRecord(fcgiBeginRequest, "\x00"+string(rune(fcgiResponder))+"\x00\x00\x00\x00\x00\x00") +
		fcgiRecord(fcgiParams, params.String()) + fcgiRecord(fcgiParams, "") + fcgiRecord(fcgiStdin, "")
}

// fcgiRecord is one record; its content must be shorter than 65,536 bytes.
func fcgiRecord(kind byte, content string) string {
	head := []byte{fcgiVersion, kind, 0, fcgiRequestID}
	head = binary.BigEndian.AppendUint16(head, uint16(len(content)))
	return string(append(head, 0, 0)) + content
}

// parseFCGI takes the body out of an answer; one that is not 200, or that did not
// end, is an error.
func parseFCGI(answer []byte) (string, error) {
	var out strings.Builder
	for ended := false; !ended; {
		if len(answer) < fcgiHeaderBytes {
			return "", errors.New("the answer ends too early")
		}
		if answer[0] != fcgiVersion {
			return "", fmt.Errorf("%q is no FastCGI", word(string(answer)))
		}
		kind := answer[1]
		content, padding := int(binary.BigEndian.Uint16(answer[4:])), int(answer[6])
		answer = answer[fcgiHeaderBytes:]
		if len(answer) < content {
			return "", errors.New("the answer ends too early")
		}
		switch kind {
		case fcgiStdout:
			out.Write(answer[:content])
		case fcgiEndRequest:
			ended = true
		}
		answer = answer[min(content+padding, len(answer)):]
	}
	head, body, ok := strings.Cut(out.String(), "\r\n\r\n")
	if !ok {
		return "", fmt.Errorf("%q has no header", word(out.String()))
	}
	for line := range strings.SplitSeq(head, "\r\n") {
		if status, is := strings.CutPrefix(line, "Status: "); is && !strings.HasPrefix(status, "200") {
			return "", fmt.Errorf("answered %s", word(status))
		}
	}
	return body, nil
}
