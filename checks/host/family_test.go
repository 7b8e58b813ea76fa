package host

import (
	"strings"
	"testing"
)

func TestProgram_NamesWhatAnUpgradeKeeps(t *testing.T) {
	for name, tt := range map[string]struct{ a, b, cmdA, cmdB string }{
		"deleted":               {"/usr/sbin/nginx", "/usr/sbin/nginx (deleted)", "", ""},
		"old":                   {"/usr/sbin/nginx", "/usr/sbin/nginx.old", "", ""},
		"another place":         {"/usr/sbin/nginx", "/opt/nginx/nginx", "", ""},
		"version":               {"/usr/sbin/php-fpm8.2", "/usr/sbin/php-fpm8.3", "", ""},
		"long version":          {"/opt/haproxy-2.6.12", "/opt/haproxy-v3.0", "", ""},
		"a script":              {"/usr/bin/python3.11", "/usr/bin/python3.12", "/usr/bin/python3 /usr/bin/gunicorn -w 4 app:a", "python3.12 -X dev /opt/bin/gunicorn app:b"},
		"a script with a title": {"/usr/bin/python3.11", "/usr/bin/python3.11", "gunicorn: master [app]", "/usr/bin/python3 /usr/bin/gunicorn app"},
		"a module":              {"/usr/bin/python3", "/usr/bin/python3", "python3 -m uvicorn app", "python -m uvicorn app"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := programName(tt.a, strings.Fields(tt.cmdA)), programName(tt.b, strings.Fields(tt.cmdB))
			if !sameProgram(a, b) {
				t.Errorf("program = %q and %q, want the same", a, b)
			}
		})
	}
	for name, tt := range map[string]struct{ a, b, cmdA, cmdB string }{
		"another server":      {"/usr/sbin/nginx", "/usr/sbin/lighttpd", "", ""},
		"another script":      {"/usr/bin/python3.11", "/usr/bin/python3.11", "python3 /usr/bin/gunicorn app", "python3 -m http.server -b 127.0.0.1 80"},
		"a title, a script":   {"/usr/bin/python3.11", "/usr/bin/python3.11", "gunicorn: worker [app]", "python3 thief.py"},
		"a copy, random name": {"/tmp/lab", "/tmp/lab-3141592653", "", ""},
		"unknown":             {"", "", "x", "x"},
		"a number for a name": {"/tmp/1", "/tmp/2", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := programName(tt.a, strings.Fields(tt.cmdA)), programName(tt.b, strings.Fields(tt.cmdB))
			if sameProgram(a, b) {
				t.Errorf("program = %q for both, want two", a)
			}
		})
	}
}
