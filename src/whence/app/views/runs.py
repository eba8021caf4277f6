"""To come."""

import streamlit as st


def show() -> None:
    st.title("runs")
