# Reads C++ files and says what they define: one line for each type, function and file.
#
#   TYPE <qualified name> <file>:<line>                        types that the linker sees: not those in anonymous namespaces
#   FUNCTION <lines> <parameters> <name> <file>:<line>         every function body, methods and lambdas with a name left out
#   NESTING <levels> <name> <file>:<line>                      the deepest place of a function that has more than one level
#   OWN <namespace> <name> <file>:<line> <what>                what stands in an anonymous namespace. What: type, variable, the types of a
#                                                              function's parameters in parentheses, what an alias stands for after a =
#   DECLARED 0 <parameters> <name> <file>:<line>               a declaration in a header
#   LAMBDA 0 <parameters> lambda <file>:<line>                 where its body opens
#   MACRO <lines> <parameters> <name> <file>:<line>            a macro with parameters
#   FILE <lines> <file>
#
# No parser: text without comments, strings and preprocessor lines is cut into words, and each brace is told apart by the
# words before it. clang-format has put the code into one form, which is what makes that enough. Plain awk.
function flush_file() {
  if (path == "") return
  if (depth != 0) print "BROKEN " path ": braces do not match (" depth ")"
  print "FILE " lines " " path
}
function start_file() {
  flush_file()
  path = FILENAME
  depth = 0; parens = 0; head = ""; in_comment = 0; in_raw = ""; in_macro = 0; lines = 0
}
# A name of an anonymous namespace. Macros are none, nor operators, nor members that are defined there.
function own(name, what,    scope, i) {
  if (kind[depth - 1] != "anonymous" || name !~ /^[A-Za-z_][A-Za-z_0-9]*$/ || name ~ /^[A-Z][A-Z_0-9]+$/ || name ~ /^operator/) return
  scope = ""
  for (i = 1; i < depth; ++i) if (kind[i] == "namespace") scope = scope label[i] "::"
  print "OWN " scope " " name " " path ":" number " " what
}
# The types of the first parenthesis: `(const A& a, int b = 2)` is `(const A&,int)`.
function parameter_types(text,    i, c, level, angle, part, all) {
  while (text ~ /^ *template *</) text = after_angle(text)
  level = 0; angle = 0; part = ""; all = ""
  for (i = index(text, "("); i <= length(text); ++i) {
    c = substr(text, i, 1)
    if (c ~ /[({[]/ && ++level == 1) continue
    if (c ~ /[)}]/ || c == "]") --level
    if (c == "<") ++angle
    if (c == ">" && substr(text, i - 1, 1) != "-") --angle
    if (level == 0 || (c == "," && level == 1 && angle == 0)) {
      sub(/ *=.*$/, "", part); gsub(/^ +| +$/, "", part); gsub(/  +/, " ", part)
      if (part ~ /[ &*>][A-Za-z_][A-Za-z_0-9]*$/) sub(/ *[A-Za-z_][A-Za-z_0-9]*$/, "", part)
      all = all part (level == 0 ? "" : ",")
      part = ""
      if (level == 0) break
    } else part = part c
  }
  return "(" all ")"
}
# The variables of a statement: `constexpr double kOne = 1, kTwo[] = {}`.
function own_variables(text,    i, c, level, angle, value, part) {
  if (kind[depth - 1] != "anonymous" || text !~ /^ *[A-Za-z_]/ || text ~ /^[^=]*\)[^=]*$/ || text ~ /^ *(using +namespace|template|friend|static_assert|extern|struct|class|enum)( |\(|$)/) return
  if (text ~ /^ *(using|typedef) /) {
    part = text
    sub(/^[^=]*/, "", part); gsub(/ +/, "", part)
    sub(/ *=.*$/, "", text); sub(/^.* /, "", text)
    own(text, part)
    return
  }
  level = 0; angle = 0; value = 0; part = ""
  for (i = 1; i <= length(text) + 1; ++i) {
    c = i <= length(text) ? substr(text, i, 1) : ","
    if (c ~ /[({[]/) { if (++level == 1 && c != "[") value = 1 }
    else if (c ~ /[)}]/ || c == "]") --level
    else if (c == "<" && !value) ++angle
    else if (c == ">" && !value) --angle
    else if (c == "=" && level == 0) value = 1
    else if (c == "," && level == 0 && (angle == 0 || value)) {
      gsub(/ +$/, "", part); sub(/^.*[ *&>]/, "", part)
      own(part, "variable")
      part = ""; value = 0; angle = 0
      continue
    }
    if (!value && level == 0 && c != "]" && angle == 0) part = part c
  }
}
# The words between the last ; { or } and this brace.
function opens(text,    name, scope, i) {
  kind[depth] = "block"
  label[depth] = ""
  sub(/^ *HWY_[A-Z_]+ *\([^()]*\) */, "", text)
  if (text ~ /^ *(inline +)?namespace *$/) { kind[depth] = "anonymous"; return }
  if (text ~ /^ *(inline +)?namespace +[A-Za-z_:]/) {
    name = text
    sub(/^ *(inline +)?namespace +/, "", name); gsub(/ /, "", name)
    kind[depth] = "namespace"; label[depth] = name
    return
  }
  if (text ~ /^ *extern +"" *$/) { kind[depth] = "namespace"; return }
  sub(/^ *template *<[^{]*> *(requires [^{]*)?(struct|class|union)/, " struct", text)
  if (text ~ /(^|[ ;:])(struct|class|union|enum)( |$)/ && text !~ /[()=] *$/ && text !~ /\) *(const|noexcept|override)? *$/) {
    name = text
    sub(/^.*(^|[ ;:])(enum +class|enum +struct|enum|struct|class|union) +/, "", name)
    gsub(/alignas *\([^)]*\) */, "", name)
    gsub(/__attribute__ *\(\([^)]*\)\) */, "", name)
    sub(/ *final */, "", name)
    sub(/ *:([^:].*)?$/, "", name)
    gsub(/ /, "", name)
    kind[depth] = "type"; label[depth] = name
    if (name == "" || name !~ /^[A-Za-z_]/) return
    own(name, "type")
    scope = ""
    for (i = 1; i < depth; ++i) {
      if (kind[i] != "namespace" && kind[i] != "type") return
      scope = scope label[i] "::"
    }
    # A specialization `X<int>` is another type than X.
    print "TYPE " scope name " " path ":" number
    return
  }
  if (outside() && text ~ /\)[^()=]*$|\) *(:|->) *[^=]*$|^[^=]*\)[^=]*:.*$/ && text !~ /^ *(if|for|while|switch|else|do|try|catch)/ && text !~ /= *$/ && text ~ /\(/) {
    kind[depth] = "function"
    label[depth] = function_name(text)
    own(label[depth], parameter_types(text))
    begin_line[depth] = head_line
    parameters[depth] = count_parameters(text)
    levels[depth] = 0; deepest[depth] = 0
    return
  }
  nest(controls(text))
}
# A block of this depth, or a statement without one (more = its controls), lies that many levels below what surrounds it. Lambdas are
# no level, but what surrounds them counts.
function nest(more,    level, i) {
  level = levels[depth - 1] + more
  levels[depth] = level
  for (i = depth; i > 0 && kind[i] != "function"; --i) {}
  if (i > 0 && level > deepest[i]) { deepest[i] = level; deepest_line[i] = number }
}
# How many controls a statement begins with: `for (...) if (...) x` has two, `else if (...)` has one.
function controls(text,    n, i, level, c) {
  n = 0
  for (;;) {
    while (sub(/^ *(case [^:]*(::[^:]*)*|default *|[a-z_]+ *):([^:]|$)/, " ", text)) {}
    if (match(text, /^ *(else +)?(if|for|while|switch|catch)( +constexpr)? *\(/)) {
      level = 0
      for (i = RLENGTH; i <= length(text); ++i) {
        c = substr(text, i, 1)
        if (c == "(") ++level
        if (c == ")" && --level == 0) break
      }
      text = substr(text, i + 1)
      ++n
    } else if (match(text, /^ *(else|do|try)( |$)/)) {
      text = substr(text, RLENGTH + 1)
      ++n
    } else {
      return n
    }
  }
}
function outside(    i) {  # not inside a function
  for (i = 1; i < depth; ++i) if (kind[i] == "function" || kind[i] == "block") return 0
  return 1
}
function function_name(text,    name) {
  name = text
  gsub(/HWY_ATTR|MR_LANES/, "", name)
  while (name ~ /^ *template *</) name = after_angle(name)
  while (name ~ /requires *\(/) sub(/requires *\([^()]*\)/, "", name)
  if (name ~ /operator *\(\)/) return "operator()"
  sub(/ *\(.*$/, "", name)
  sub(/^.*[ *&]/, "", name)
  return name
}
function after_angle(text,    i, level, c) {
  level = 0
  for (i = index(text, "<"); i <= length(text); ++i) {
    c = substr(text, i, 1)
    if (c == "<") ++level
    if (c == ">" && --level == 0) return substr(text, i + 1)
  }
  return ""
}
# Parameters of the first parenthesis that belongs to the function's name.
function count_parameters(text,    i, c, level, angle, n, seen) {
  while (text ~ /^ *template *</) text = after_angle(text)
  if (text ~ /operator *\(\)/) sub(/operator *\(\)/, "operator_call", text)
  i = index(text, "(")
  level = 0; angle = 0; n = 0; seen = 0
  for (; i <= length(text); ++i) {
    c = substr(text, i, 1)
    if (c == "(" || c == "[" || c == "{") { ++level; if (level == 1) continue }
    if (c == ")" || c == "]" || c == "}") { --level; if (level == 0) break }
    if (c == "<" && level == 1) ++angle
    if (c == ">" && angle > 0 && substr(text, i - 1, 1) != "-") --angle
    if (c == "," && level == 1 && angle == 0) ++n
    if (c != " ") seen = 1
  }
  return seen ? n + 1 : 0
}
# A lambda that opens here: what is behind its last ] is one list of parameters and no more than a type.
function lambda(text,    rest) {
  while (match(text, /\] *\(/)) { text = substr(text, RSTART + 1); rest = text }
  if (rest == "" || rest !~ /\) *((mutable|noexcept|HWY_ATTR) *)*(-> *[A-Za-z_0-9:<>&*, ]+)?$/) return
  print "LAMBDA 0 " count_parameters(rest) " lambda " path ":" number
}
# The lines of a macro are added up until one does not go on.
function macro(text,    name) {
  if (!in_macro && text ~ /^[ \t]*#[ \t]*define[ \t]+[A-Za-z_0-9]+\(/) {
    name = text
    sub(/^[ \t]*#[ \t]*define[ \t]+/, "", name)
    macro_parameters = count_parameters(name); macro_line = number
    sub(/\(.*/, "", name)
    macro_name = name
  }
  in_macro = text ~ /\\$/
  if (!in_macro && macro_name != "") {
    print "MACRO " number - macro_line + 1 " " macro_parameters " " macro_name " " path ":" macro_line
    macro_name = ""
  }
}
function closes() {
  if (kind[depth] == "function" && deepest[depth] > 1) print "NESTING " deepest[depth] " " label[depth] " " path ":" deepest_line[depth]
  if (kind[depth] == "function") print "FUNCTION " number - begin_line[depth] + 1 " " parameters[depth] " " label[depth] " " path ":" begin_line[depth]
  --depth
}
function declared(text) {
  if (path !~ /\.h$/ || !outside_next() || text !~ /\(/ || text ~ /^ *(using|typedef|friend|static_assert|return|#)/) return
  if (text ~ /=.*\(/ || text ~ /^ *(MR_|EXPECT|HWY_)/) return
  if (text !~ /[A-Za-z_0-9>&*] +[&*]*[A-Za-z_~][A-Za-z_0-9]* *\(|^ *(explicit +)?[A-Z][A-Za-z0-9]* *\(/) return
  print "DECLARED 0 " count_parameters(text) " " function_name(text) " " path ":" head_line
}
function outside_next(    i) {
  for (i = 1; i <= depth; ++i) if (kind[i] == "function" || kind[i] == "block") return 0
  return 1
}
FNR == 1 { start_file() }
{
  lines = FNR
  number = FNR
  text = $0
  if (in_raw != "") {  # inside a raw string
    at = index(text, in_raw)
    if (at == 0) next
    text = "\"\"" substr(text, at + length(in_raw))
    in_raw = ""
  }
  if (in_macro || text ~ /^[ \t]*#/) { macro(text); next }
  out = ""
  while (text != "") {
    if (in_comment) {
      at = index(text, "*/")
      if (at == 0) { text = ""; break }
      text = substr(text, at + 2); in_comment = 0
      continue
    }
    if (!match(text, /\/\/|\/\*|R"[A-Za-z_]*\(|"|[0-9]'[0-9]|'/)) { out = out text; break }
    token = substr(text, RSTART, RLENGTH)
    out = out substr(text, 1, RSTART - 1)
    text = substr(text, RSTART + RLENGTH)
    if (token == "//") break
    if (token == "/*") { in_comment = 1; continue }
    if (token ~ /^[0-9]/) { out = out substr(token, 1, 1); text = substr(token, 3) text; continue }
    if (token ~ /^R/) {
      in_raw = ")" substr(token, 3, length(token) - 3) "\""
      at = index(text, in_raw)
      if (at == 0) { text = ""; break }
      text = substr(text, at + length(in_raw)); in_raw = ""
      out = out "\"\""
      continue
    }
    pattern = token == "'" ? "^([^'\\\\]|\\\\.)*'" : "^([^\"\\\\]|\\\\.)*\""
    if (!match(text, pattern)) { text = ""; break }
    text = substr(text, RLENGTH + 1)
    out = out "\"\""
  }
  while (match(out, /[;{}()]/)) {
    before = substr(out, 1, RSTART - 1)
    c = substr(out, RSTART, 1)
    out = substr(out, RSTART + 1)
    if (head ~ /^ *$/ && before !~ /^ *$/) head_line = number
    head = head before
    # An access label is no part of what follows.
    sub(/^ *(public|private|protected) *: */, "", head)
    if (c == "(") { if (head ~ /^ *$/) head_line = number; ++parens; head = head c }
    else if (c == ")") { --parens; head = head c }
    else if (c == ";") {
      if (parens > 0) { head = head " " } else { declared(head); ++depth; kind[depth] = "block"; own_variables(head); nest(controls(head)); --depth; head = "" }
    } else if (c == "{") {
      lambda(head)
      ++depth
      saved_head[depth] = head; saved_parens[depth] = parens; saved_line[depth] = head_line
      if (parens > 0) { kind[depth] = "block"; label[depth] = ""; levels[depth] = levels[depth - 1] } else opens(head)
      head = ""; parens = 0
    } else {
      closes()
      # A braced value inside a statement: what came before it goes on.
      head = (kind[depth + 1] == "block" && (saved_parens[depth + 1] > 0 || saved_head[depth + 1] ~ /[=,(] *$|[A-Za-z_0-9>] *$/ && !control(saved_head[depth + 1]))) ? saved_head[depth + 1] "{}" : ""
      parens = saved_parens[depth + 1]
      head_line = saved_line[depth + 1]
    }
  }
  if (head ~ /^ *$/ && out !~ /^ *$/) head_line = number
  head = head out " "
  sub(/^ *(public|private|protected) *: */, "", head)
}
function control(text) { return text ~ /^ *(else|do|try)? *$/ || text ~ /\) *(const|noexcept|override|mutable)* *$/ }
END { flush_file() }
