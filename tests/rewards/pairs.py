# ruff: noqa: RUF001
"""Pairs of answers with the verdict that they must get, both ways round, by kind."""

SAME = {
    "bases": [
        ("101_2", "101_{2}"), ("101_2", "5_{10}"), (r"204_{\text{five}}", "204_5"), ("(101)_2", "101_2"),
    ],
    "complex": [
        ("3+4i", "4i+3"), ("i^2", "-1"), (r"\frac{1+i}{2}", r"\frac12+\frac i2"), ("(1+i)(1-i)", "2"),
        (r"e^{i\pi}", "-1"), (r"-1 \pm i\sqrt3", r"-1+\sqrt3 i, -1-\sqrt3 i"), (r"3+4\,i", "3+4i"),
    ],
    "equations": [
        ("y=2x+1", "2x-y+1=0"), ("2x+1", "y=2x+1"), ("y = 1/x", "xy=1"), ("x=5", "5"), ("3x=15", "x=5"),
        ("5=x", "x=5"), (r"\angle ABC=30^\circ", "30"), ("AB=12", "12"), ("P(x)=x^2", "x^2"),
        ("x=3,y=4", "(3,4)"), ("(x,y)=(3,4)", "x=3, y=4"), ("x = 2 + 3 = 5", "5"), ("a_n=2n+1", "2n+1"),
        (r"S=\{1,2\}", "1,2"), (r"f^{-1}(x)=\frac{x-1}{2}", r"\frac{x-1}{2}"),
        (r"\frac{x}{2}+\frac{y}{3}=1", "3x+2y=6"),
    ],
    "expressions": [
        ("(x-1)(x+1)", "x^2-1"), (r"\frac{x^2-1}{x-1}", "x+1"), (r"\frac{1}{\sqrt2}", r"\frac{\sqrt2}{2}"),
        (r"\ln e^2", "2"), ("xy", "yx"), (r"\sin^2x+\cos^2x", "1"), (r"\sin 2x", r"2\sin x\cos x"),
        (r"\sqrt[3]{16}", r"2\sqrt[3]{2}"), ("|x|", r"\sqrt{x^2}"), (r"\binom{5}{2}", "10"), ("5!", "120"),
        (r"\lfloor 3.7\rfloor", "3"), (r"e^{x+1}", r"e\cdot e^x"), (r"x\sqrt{x}", "x^{3/2}"),
        ("2^{x}2^{3}", "2^{x+3}"), (r"\frac{1}{2}bh", r"\frac{bh}{2}"), (r"(-8)^{1/3}", "-2"), ("a(b+c)",
        "ab+ac"),
        (r"\sqrt{11+6\sqrt2}", r"3+\sqrt2"), (r"\sin 30^\circ", r"\frac12"), ("n!", "n(n-1)!"),
    ],
    "fractions": [
        (r"\frac{3}{-4}", r"-\frac34"), (r"2\frac12", "2.5"), (r"\frac{\frac12}{3}", r"\frac16"),
        (r"\frac{0.5}{2}", "0.25"), (r"{3}/{4}", r"\frac34"), ("2½", "2.5"), (r"\frac {1} {2}", "0.5"),
    ],
    "infinite": [("inf", r"\infty"), (r"\text{DNE}", r"\text{dne}"), (r"+\infty", r"\infty")],
    "intervals": [
        ("x>3", r"(3,\infty)"), ("3<x", "x>3"), (r"[0,1]", r"0\le x\le1"), (r"(-\infty,2)\cup(2,\infty)",
        r"x\neq 2"),
        (r"\mathbb{R}", r"(-\infty,\infty)"), (r"\mathbb{R}\setminus\{2\}", r"x\ne2"), ("2x<6", "x<3"),
        ("x^2<4", "(-2,2)"), ("-2<x<2", "|x|<2"), (r"x>1 \text{ and } x<5", "(1,5)"), ("1<x<5", "5>x>1"),
        (r"\{x \mid x>3\}", r"(3,\infty)"), (r"\{x : x>3\}", "x>3"), (r"[1,2]\cup[2,3]", "[1,3]"),
        (r"x\le-1 \text{ or } x\ge1", r"(-\infty,-1]\cup[1,\infty)"), ("x+y<4", "y<4-x"),
        ("x+y<4", "-x-y>-4"),
        (r"(1,3)\cup\{5\}", r"\{5\}\cup(1,3)"), (r"(-5,-2)\cup(1,4)", r"(1,4)\cup(-5,-2)"),
        (r"\frac{x+1}{x-2}\ge0", r"(-\infty,-1]\cup(2,\infty)"), (r"(-\infty,3]\cap(1,\infty)", "(1,3]"),
    ],
    "matrices": [
        (r"\begin{bmatrix}1&2\end{bmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}"),
        (r"\left(\begin{array}{c}1\\2\end{array}\right)", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"2\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}2\\4\end{pmatrix}"),
    ],
    "numbers": [
        ("1,000,000", "1000000"), ("1 000", "1000"), ("007", "7"), ("+5", "5"), ("- 5", "-5"), ("1.000", "1"),
        ("10{,}000", "10000"), (r"\text{13}", "13"), ("1.2e3", "1200"), (r"10^{-3}", "0.001"), ("1E5",
        "100000"),
        (r"\frac{1}{2}\%", "0.5"), ("25 percent", "25"), ("12.5\\%", r"12\frac12\%"), (r"0.1\overline{6}",
        r"\frac16"),
    ],
    "sets": [
        ("1,2,3", "3,2,1"), (r"x=1,x=2", "1,2"), (r"x=\pm2", "2,-2"), (r"\pm 2", r"x=2\text{ or }x=-2"),
        (r"\frac{1\pm\sqrt5}{2}", r"\frac{1+\sqrt5}{2},\frac{1-\sqrt5}{2}"), (r"\pm1,\pm2", "-2,-1,1,2"),
        (r"\{(1,2),(3,4)\}", "(3,4),(1,2)"), ("1, 2, and 3", "3,2,1"), (r"\mp 3", r"\pm 3"), ("5", r"\{5\}"),
        (r"\varnothing", r"\{\}"),
        (r"\{1\}\cup\{2\}", "1,2"), (r"(\pm1,0)", "(1,0),(-1,0)"),
    ],
    "text": [
        ("yes", "Yes"), ("NO", "no"), ("(A)", "A"), (r"\mathrm{odd}", "odd"), ("B", r"\textbf{(B) }"),
        ("A,C", "C,A"),
        (r"\text{no solution}", r"\text{No solution}"),
    ],
    "times, ratios": [("4:3", "8:6"), ("1:2:3", "2:4:6"), ("3:00 PM", "3:00"), ("17 R 2",
    r"17 \text{ remainder } 2")],
    "tuples": [
        (r"\langle1,2\rangle", "(1,2)"), ("[1, 3, 7]", "1, 3, 7"), ("(x+1,y)", "(1+x,y)"), ("((1,2),3)",
        "((1,2),3)"),
    ],
    "unicode": [
        ("5×3", "15"), ("π", r"\pi"), ("x²+1", "x^2+1"), ("3⁄4", r"\frac34"), ("x≥2", r"[2,\infty)"), ("x₁",
        "x_1"),
        ("10⁻³", "0.001"), ("（1，2）", "(1,2)"), ("x ∈ [0, 1]", "[0,1]"), ("√(8)", "2√2"), ("–5", "-5"),
    ],
    "units": [
        ("5 cm", "5"), (r"\$5", r"5\text{ dollars}"), (r"12\text{ apples}", "12"), (r"30\text{ degrees}",
        r"30^\circ"),
        (r"5\text{ m/s}", r"5\text{ meters per second}"), (r"10\text{ square inches}", r"10\text{ in}^2"),
        (r"9\pi\text{ cm}^2", r"9\pi"), (r"1.5\text{ billion}", "1500000000"), (r"\text{5 cm}", "5"),
        ("5th", "5"),
        (r"25^{\circ}\text{C}", "25"), (r"24\text{ sq. ft}", "24"),
    ],
}  # fmt: skip

DIFFERENT = {
    "bases": [("123_5", "123_6"), ("54", "204_5")],
    "complex": [("2i", "-2i"), (r"i\sqrt3", r"\sqrt3")],
    "degenerate": [(r"\sqrt{}", "0"), ("()", "0"), ("+", "1"), (r"\text{}", "0"), (r"\frac", "0"), ("=",
    "0")],
    "equations": [
        ("x=5", "x=6"), ("a=5", "x=5"), ("f(x)=x^2", "f(x)=x^3"), ("x=3,y=4", "(4,3)"), ("x+y=5", "5"),
        ("2+3=6", "6"),
        ("x^2=4", "x=2"), (r"x \approx 3.14", r"\pi"),
    ],
    "expressions": [
        ("2xy", "2x+y"), ("a^2-b^2", "(a-b)^2"), ("x", "X"), ("3x^2y", "3xy^2"), ("816+e^{-1000}", "816"),
        (r"\pi", "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899"),
    ],
    "hedges": [
        ("3, 5", "3"), ("3 or 5", "5"), (r"\text{3 or 5}", "3"), ("4 (maybe 5)", "4"), (r"\{3,5\}", "3"),
        ("[3,5]", "4"), ("about 4", "4"), ("5?", "5"), ("3|5", "3"), ("3 5", "35"), (r"3 \approx 5", "3"),
    ],
    "infinite": [(r"-\infty", r"\infty"), (r"\frac10", r"\infty"), (r"\frac{0}{0}", "0"), (r"\log 0",
    r"-\infty")],
    "code": [
        ("__import__('os')", "0"), ("print(5)", "5"), ("int('5')", "5"), ("lambda: 5", "5"), ("eval('2+3')",
        "5"),
        ("S(5)", "5"), ("Integer(5)", "5"), ("max(3,5)", "5"), ("0x5", "5"), ("True+4", "5"), ("5//1", "5"),
    ],
    "intervals": [
        ("(0,1)", "[0,1]"), ("x<3", "y<3"), ("x+y<4", "x+y>4"), (r"\{0\}", r"\emptyset"), (r"x\ge 5", "x>5"),
        ("x^2<4", "[-2,2]"), (r"(1,3)\cup\{5\}", "(1,5]"),
    ],
    "matrices": [
        (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}"),
        (r"\begin{pmatrix}1&2\\3\end{pmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        (r"\begin{vmatrix}1&2\\3&4\end{vmatrix}", r"\begin{pmatrix}1&2\\3&4\end{pmatrix}"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", "(1,2)"),
    ],
    "numbers": [
        ("1,00", "100"), ("--5", "5"), ("1.000", "1000"), ("1,2,3", "123"), ("(1,234)", "1234"), ("1'000",
        "1000"),
        (r"25\%", "0.25"), ("0.5", r"50\%"), ("1/3", "0.333"), (r"\frac{2}{3}", r"\frac{3}{2}"),
    ],
    "sets": [("1,2", "1,2,3"), ("1,1", "1"), (r"\{1,1,2\}", r"\{1,2\}")],
    "text": [("listen", "silent"), ("no", "on"), ("cat", "act"), ("True", "1"), ("true", "false"), ("A",
    "B")],
    "times, ratios": [("4:3", "3:4"), ("3:05", "3:50"), ("3:00 PM", "3:00 AM")],
    "tuples": [
        ("(1,2,3)", "(3,2,1)"), ("(1,2)", "1,2"), ("(1,2)", "[1,2]"), ("(a,b)", "(b,a)"), ("[1,3,7]",
        "[7,3,1]"),
    ],
    "units": [
        (r"\$5", r"5\%"), ("5m", "5"), (r"3\text{ feet}", r"1\text{ yard}"), ("5 x", "5"), ("€5", r"\$5"),
        (r"5\text{ hours}", r"300\text{ minutes}"),
    ],
}  # fmt: skip
