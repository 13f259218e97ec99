"""The paper's comparison, figure by figure: jobs that can run anywhere, and what their results say."""
