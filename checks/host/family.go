package host

import (
	"path"
	"strings"
)

// interpreters run programs that are named by their arguments: two services of
// one interpreter are no family. By file name, without its version.
var interpreters = map[string]bool{
	"python": true, "pypy": true, "perl": true, "ruby": true, "node": true, "nodejs": true, "deno": true, "bun": true,
	"java": true, "php": true, "lua": true, "luajit": true, "mono": true, "dotnet": true, "beam.smp": true, "tclsh": true,
	"sh": true, "bash": true, "dash": true, "zsh": true, "ksh": true, "busybox": true,
}

// programName names what a process runs: its executable's file name without what an
// upgrade changes of it, and for an interpreter the script. args are those of
// /proc/PID/cmdline. Empty if neither can be told.
func programName(exe string, args []string) string {
	if exe == "" {
		return ""
	}
	name := unversioned(path.Base(exe))
	if interpreters[name] {
		return name + " " + script(name, args)
	}
	return name
}

// script is what an interpreter runs: the module after -m, the text after -c or
// -e, the archive after -jar, or the first argument that is no option. A process
// that wrote a title over its arguments ("gunicorn: master [app]") is that.
func script(interpreter string, args []string) string {
	if len(args) == 0 {
		return ""
	}
	first, _, _ := strings.Cut(args[0], " ")
	if title := strings.TrimRight(first, ":"); unversioned(path.Base(title)) != interpreter {
		return path.Base(title)
	}
	for i := 1; i < len(args); i++ {
		switch a := args[i]; {
		case (a == "-m" || a == "-c" || a == "-e" || a == "-jar") && i+1 < len(args):
			return path.Base(args[i+1])
		case a == "-X" || a == "-W" || a == "-cp" || a == "-classpath" || a == "-r" || a == "--require":
			i++ // options with a value of their own
		case !strings.HasPrefix(a, "-"):
			return path.Base(a)
		}
	}
	return ""
}

// unversioned drops what tells one version of a file from the next: " (deleted)",
// ".old", ".new" and a number at the end ("php-fpm8.2", "nginx-1.26.3").
func unversioned(name string) string {
	whole := name
	name = strings.TrimSuffix(name, " (deleted)")
	for _, s := range []string{".old", ".oldbin", ".new", ".bak"} {
		name = strings.TrimSuffix(name, s)
	}
	end := len(name)
	digits := 0 // of the present number; chosen: longer ones are no versions but random names
	for end > 0 {
		c := name[end-1]
		if c >= '0' && c <= '9' {
			digits++
		} else if c == '.' && digits > 0 {
			digits = 0
		} else {
			break
		}
		if digits > 4 {
			return name
		}
		end--
	}
	if end == len(name) {
		return name
	}
	name = name[:end]
	for _, s := range []string{"-v", "_v", ".v"} {
		name = strings.TrimSuffix(name, s)
	}
	if name = strings.TrimRight(name, "-._"); name == "" {
		return whole
	}
	return name
}

// sameProgram reports whether two processes run one program, maybe in another
// version or from another place. What is not known is not the same.
func sameProgram(a, b string) bool { return a != "" && a == b }
